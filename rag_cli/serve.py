"""`rag serve`."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from jobs.options import Globals, command, output, print_json
from jobs.runner import STDERR
from rag_core.errors import ConfigError, RagError

HOST, PORT = "127.0.0.1", 8000


@command
def serve(
    options: Globals,
    host: Annotated[
        str | None,
        typer.Option(help=f"The address that it listens on; {HOST} if nothing says more.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help=f"The port that it listens on; {PORT} if nothing says more.", min=1, max=65_535, show_default=False
        ),
    ] = None,
) -> None:
    """The HTTP API on Ray Serve, until it is interrupted: with its models in one process, or as a Serve config says.

    A --config file with the key `applications` is a Serve config, such as cluster/serve/gpu.yaml; its settings stand in
    it. SIGUSR1 has it read again: what may change while it serves is changed then. Any other file is one of settings.

    Example: rag serve --port 8000
    """
    began = time.perf_counter()
    # its own descriptor: standard error is taken away from Ray's native code
    with (
        os.fdopen(os.dup(STDERR), "w", buffering=1) as told,
        _served(options, host, port, Console(file=told, quiet=options.quiet, soft_wrap=True)) as url,
    ):
        seconds = round(time.perf_counter() - began, 1)
        if options.json:
            print_json({"url": url, "seconds": seconds})
        else:
            output(options.quiet).print(f"{url} answers, after {seconds} s; {url}/docs shows what. Ctrl-C ends it.")
        while True:
            signal.pause()


@contextmanager
def _served(options: Globals, host: str | None, port: int | None, terminal: Console) -> Iterator[str]:
    from serve.shape.local import serve_locally, serve_shape, set_environment

    terminal.print("starting Ray, loading models …")
    set_environment()
    from serve.shape.config import is_shape, read_shape

    if options.config is None or not is_shape(options.config):
        from serve.app import local_app

        with serve_locally(partial(local_app, options.settings), host or HOST, port or PORT, terminal.print) as url:
            yield url
        return
    if given := [name for name in ("profile", "set", "store", "tenant") if getattr(options, name)]:
        raise ConfigError(f"--{given[0]} goes into the args of {options.config}, which is a Serve config")
    with serve_shape(read_shape(options.config), host or "", port or 0, terminal.print) as url:
        signal.signal(signal.SIGUSR1, partial(_read_again, options.config, terminal))
        yield url


def _read_again(file: Path, terminal: Console, *_signal: object) -> None:
    from serve.shape.config import read_shape
    from serve.shape.local import deploy

    try:
        deploy(read_shape(file))
    except RagError as error:
        terminal.print(f"error: {error}; all stays as it was")
    else:
        terminal.print(f"{file} is read again")
