"""Consoles: standard output for results, standard error for progress."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

STDERR = 2
PIPE_WIDTH = 1000
"""The width of output into a pipe, in columns. Programs count and search its lines, so they should not be wrapped."""


class _StandardOutput(Console):
    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError, because Rich itself would end the process with exit code 1."""
        raise BrokenPipeError


def stdout_console(quiet: bool = False) -> Console:
    """A console on standard output: as wide as the terminal, or `PIPE_WIDTH` columns for a pipe."""
    return _StandardOutput(quiet=quiet, width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


@contextmanager
def stderr_console(quiet: bool, soft_wrap: bool = False) -> Iterator[Console]:
    """Yields a console on standard error with its own descriptor, which `redirect_native_errors` does not redirect."""
    with os.fdopen(os.dup(STDERR), "w", buffering=1) as terminal:
        yield Console(file=terminal, quiet=quiet, soft_wrap=soft_wrap)
