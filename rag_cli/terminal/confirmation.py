"""Confirmation of commands that cannot be undone."""

import sys

import typer

from rag_cli.terminal.options import GlobalOptions
from rag_core.errors import ConfirmationError


def confirm(question: str, options: GlobalOptions) -> bool:
    """Asks the user on the terminal. Returns False without asking if there is no terminal, or with `--json`."""
    return not options.json and sys.stdin.isatty() and typer.confirm(question, err=True)


def require_confirmation(question: str, options: GlobalOptions, *, confirmed: bool) -> None:
    """Asks the user, unless `confirmed` (`--yes`) is set. Raises ConfirmationError if the user does not agree."""
    if not confirmed and not confirm(question, options):
        raise ConfirmationError(f"{question} Pass --yes to confirm.")
