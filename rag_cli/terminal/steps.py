"""The display of work that has steps, but no total."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from rag_cli.terminal.options import GlobalOptions
from rag_cli.terminal.progress import ProgressLines


@contextmanager
def show_steps(options: GlobalOptions) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows the current step on a terminal, or else prints a line from time to time."""
    console = Console(stderr=True, quiet=options.quiet)
    lines = ProgressLines(console)
    with console.status("") as status:

        def show(step: str) -> None:
            status.update(step)
            lines.print(step)

        yield show
