"""A yes before what cannot be undone."""

import sys

import typer

from jobs.options import Globals
from rag_core.errors import ConfirmationError


def says_yes(question: str, options: Globals) -> bool:
    """Never where nobody can be asked: with `--json`, or without a terminal."""
    return not options.json and sys.stdin.isatty() and typer.confirm(question, err=True)


def want_yes(question: str, options: Globals, *, given: bool) -> None:
    """`given` is `--yes`. ConfirmationError if there is no yes."""
    if not given and not says_yes(question, options):
        raise ConfirmationError(f"{question} Only with a yes: add --yes")
