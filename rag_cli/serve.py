"""`rag serve`."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from rag_cli.profile_choice import announce_variant
from rag_cli.terminal.consoles import stderr_console, stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_core.errors import ConfigError, RagError

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

    A --config file with the key `applications` is a Serve config, such as cluster/serve/gpu.yaml. Its `args` are the
    settings. SIGUSR1 reloads it and applies the changes that are possible while serving.

    Example: rag serve --port 8000
    """
    started = time.perf_counter()
    with (
        stderr_console(options.quiet, soft_wrap=True) as terminal,
        _run_server(options, host, port, terminal) as url,
    ):
        from serve.http.access_log import FILE_NAMES
        from serve.shape.logs_folder import serve_logs_folder

        seconds = round(time.perf_counter() - started, 1)
        access_log = str(serve_logs_folder() / FILE_NAMES.format(process="*"))
        terminal.print(f"access log: {access_log}")
        if options.json:
            print_json({"url": url, "seconds": seconds, "access_log": access_log})
        else:
            message = f"serving at {url} after {seconds} s; {url}/docs lists the routes; stop with Ctrl-C"
            stdout_console(options.quiet).print(message)
        from serve.shape.local import watch

        watch(url, seconds)


@contextmanager
def _run_server(options: GlobalOptions, host: str | None, port: int | None, terminal: Console) -> Iterator[str]:
    """Serves during the block, and yields the URL."""
    from serve.shape.local import deploy, serve_from_config, serve_locally, set_environment

    terminal.print("starting Ray, loading models …")
    set_environment()
    from serve.shape.config import find_metrics_port, is_serve_config, read_serve_config

    if options.config is None or not is_serve_config(options.config):
        from serve.app import build_local_application

        settings = options.settings
        announce_variant(settings, options)
        if host:  # it can be a name of loopback
            hosts = (*settings.api.hosts, host)
            settings = settings.model_copy(update={"api": settings.api.model_copy(update={"hosts": hosts})})
        build_app, metrics_port = partial(build_local_application, settings), settings.telemetry.metrics_port
        with serve_locally(build_app, host or HOST, port or PORT, terminal.print, metrics_port) as url:
            yield url
        return
    if overrides := [name for name in ("profile", "set", "store", "tenant") if getattr(options, name)]:
        raise ConfigError(
            f"--{overrides[0]} cannot be used with the Serve config {options.config}; set it in the `args` there"
        )
    file = options.config

    def reload_config(*_signal: object) -> None:
        try:
            deploy(read_serve_config(file))
        except RagError as error:
            terminal.print(f"error: {error}; nothing was changed")
        else:
            terminal.print(f"reloaded {file}")

    config = read_serve_config(file)
    with serve_from_config(config, host or "", port or 0, terminal.print, find_metrics_port(config)) as url:
        signal.signal(signal.SIGUSR1, reload_config)
        yield url
