"""`rag serve`."""

import signal
import time
from typing import Annotated

import typer
from rich.console import Console

from jobs.options import Globals, command, output, print_json


@command
def serve(
    options: Globals,
    host: Annotated[str, typer.Option(help="The address that it listens on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port that it listens on.", min=1, max=65_535)] = 8000,
) -> None:
    """The HTTP API on Ray Serve, with its models in one process, until it is interrupted.

    Example: rag serve --port 8000
    """
    from serve.running import served

    settings, began = options.settings, time.perf_counter()
    Console(stderr=True, quiet=options.quiet).print("starting Ray, loading models …")
    with served(settings, host, port) as url:
        seconds = round(time.perf_counter() - began, 1)
        if options.json:
            print_json({"url": url, "seconds": seconds})
        else:
            output(options.quiet).print(f"{url} answers, after {seconds} s; {url}/docs shows what. Ctrl-C ends it.")
        signal.pause()
