"""`rag serve`."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rag_cli.profile_choice import announce_variant
from rag_cli.terminal.consoles import stderr_console, stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_core.config import Settings
from rag_core.errors import ConfigError, RagError

if TYPE_CHECKING:
    from serve.gateway_settings import SettingsSource

HOST, PORT = "127.0.0.1", 8000


@command
def serve(
    options: GlobalOptions,
    host: Annotated[
        str | None,
        typer.Option(
            help=f"The address to listen on; by default that of the Serve config, or {HOST}.", show_default=False
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help=f"The port to listen on; by default that of the Serve config, or {PORT}.",
            min=1,
            max=65_535,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve the HTTP API on Ray Serve until interrupted, with all models in one process or as a Serve config defines.

    SIGTERM ends it in steps: `/readyz` responds with 503 for `serving.drain_s` seconds, and requests in progress end.

    Requests can name any profile of the configuration; its models are loaded when the first request names it.
    A --config file with the key `applications` is a Serve config, such as cluster/serve/gpu.yaml. Its `args` are the
    settings. When the file changes, the changes that are possible while serving apply to new requests.

    Example: rag serve --port 8000
    """
    from serve.shape.draining import defer_sigterm, drain_when_terminated

    started = time.perf_counter()
    with (
        stderr_console(options.quiet, soft_wrap=True) as terminal,
        defer_sigterm(),
        _run_server(options, host, port, terminal) as server,
    ):
        from serve.http.access_log import FILE_NAMES
        from serve.shape.logs_folder import serve_logs_folder

        seconds = round(time.perf_counter() - started, 1)
        url, access_log = server.url, str(serve_logs_folder() / FILE_NAMES.format(process="*"))
        terminal.print(f"access log: {access_log}")
        if options.json:
            print_json({"url": url, "seconds": seconds, "access_log": access_log})
        else:
            message = f"serving at {url} after {seconds} s; {url}/docs lists the routes; stop with Ctrl-C"
            stdout_console(options.quiet).print(message)
        from serve.shape.local import watch

        drain_when_terminated(partial(watch, url, seconds, server.poll_file), server.drain_seconds, terminal.print)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that is ready. `poll_file` applies the configuration file if it has changed, and prints the outcome.

    `drain_seconds` is `serving.drain_s` of each gateway, by the name of its application.
    """

    url: str
    poll_file: Callable[[], None]
    drain_seconds: Mapping[str, float]


@contextmanager
def _run_server(
    options: GlobalOptions, host: str | None, port: int | None, terminal: Console
) -> Iterator[RunningServer]:
    """Serves during the block."""
    from serve.shape.local import set_environment

    terminal.print("starting Ray, loading models …")
    set_environment()
    from serve.shape.config import is_serve_config

    if options.config is not None and is_serve_config(options.config):
        if overrides := [name for name in ("profile", "set", "store", "tenant") if getattr(options, name)]:
            raise ConfigError(
                f"--{overrides[0]} cannot be used with the Serve config {options.config}; set it in the `args` there"
            )
        running = _serve_config(options.config, host or "", port or 0, terminal)
    else:
        running = _serve_settings(options, host or HOST, port or PORT, terminal)
    with running as server:
        yield server


@contextmanager
def _serve_settings(options: GlobalOptions, host: str, port: int, terminal: Console) -> Iterator[RunningServer]:
    """Serves all profiles of the settings with their models in one process, which reloads the file by itself."""
    from serve.app import build_local_application
    from serve.gateway_settings import load_gateway_settings
    from serve.shape.local import NAME, serve_locally
    from serve.shape.reload import reload_gateway_settings

    source = build_source(options, host)
    settings = load_gateway_settings(source)
    announce_variant(settings.own, options)
    for name, reason in settings.invalid.items():
        terminal.print(f"profile {name} is not served: {reason}")

    build_app, own = partial(build_local_application, settings, source), settings.own
    with serve_locally(build_app, host, port, terminal.print, own.telemetry.metrics_port, own.auth) as url:
        print_advice([own], host, terminal)
        check = partial(reload_gateway_settings, settings, source)
        poll_file = _build_file_poll(options.config, source.digest, check, terminal)
        yield RunningServer(url, poll_file, {NAME: own.serving.drain_s})


def build_source(options: GlobalOptions, host: str) -> "SettingsSource":
    """The layers of the settings. A host that is a name is added to `api.hosts`, so that requests can use it.

    They can always use an address, which adds no override, so that a change of `api.hosts` in the file is noticed.
    """
    from serve.gateway_settings import SettingsSource
    from serve.http.request_checks import is_ip_address

    hosts = [] if is_ip_address(host) else [f"api.hosts={json.dumps([*options.settings.api.hosts, host])}"]
    return SettingsSource(
        file=str(options.config.absolute()) if options.config else "",
        profile=options.profile or "",
        set=(*options.overrides, *hosts),
    )


@contextmanager
def _serve_config(file: Path, host: str, port: int, terminal: Console) -> Iterator[RunningServer]:
    """Serves a Serve config, and deploys it again when it changes."""
    from serve.file_watch import hash_file
    from serve.shape.config import list_gateway_settings, read_serve_config
    from serve.shape.exposure import OPEN
    from serve.shape.local import deploy, serve_from_config

    digest, config = hash_file(file), read_serve_config(file)
    settings_by_name = list_gateway_settings(config)
    gateways = list(settings_by_name.values())
    metrics_port = gateways[0].telemetry.metrics_port if gateways else 0
    auth = min((own.auth for own in gateways), key=lambda auth: auth.mode != "none", default=OPEN)
    with serve_from_config(config, host, port, terminal.print, metrics_port, auth) as url:
        print_advice(gateways, host or config.http_options.host or "", terminal)
        poll_file = _build_file_poll(file, digest, lambda: deploy(read_serve_config(file)), terminal)
        drain_seconds = {name: settings.serving.drain_s for name, settings in settings_by_name.items()}
        yield RunningServer(url, poll_file, drain_seconds)


def print_advice(gateways: Sequence[Settings], host: str, terminal: Console) -> None:
    """Prints what an operator of authenticated gateways can have forgotten: the first key, and HTTPS."""
    from serve.shape.exposure import is_loopback

    if not is_loopback(host):
        terminal.print(f"requests to {host} are not encrypted: let a proxy with HTTPS pass them on")
    for settings in gateways:
        if settings.auth.mode == "keys" and not _has_active_key(settings):
            create = f"rag keys create --tenant {settings.tenant} --role admin"
            terminal.print(f"tenant {settings.tenant} has no active API key; `{create}` creates one", markup=False)


def _has_active_key(settings: Settings) -> bool:
    from rag_core.storage.keys import Keys
    from rag_core.storage.postgres import Postgres

    with Postgres.open(settings.store.url).connect() as connection:
        return any(key["status"] == "active" for key in Keys(connection, settings.tenant).list_all())


def _build_file_poll(
    file: Path | None, digest: str, apply: Callable[[], object], terminal: Console
) -> Callable[[], None]:
    """A function that calls `apply` if the file has changed, and prints the outcome."""
    from serve.file_watch import FileWatch

    if file is None:
        return lambda: None
    watch = FileWatch(file, digest)

    def poll() -> None:
        if not watch.has_changed():
            return
        try:
            apply()
        except RagError as error:
            terminal.print(f"error: {error}; nothing was changed")
        else:
            terminal.print(f"reloaded {file}: new requests use it")

    return poll
