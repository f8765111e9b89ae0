"""`rag fsck`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TextIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.progress import ProgressLines
from rag_core.storage.fsck import INVARIANTS, REPAIRS, ProgressListener, Violation, find_violations
from rag_core.storage.postgres import Postgres, transaction


@command
def fsck(options: GlobalOptions) -> None:
    """Check the store's invariants for all tenants. The exit code is 1 if one is broken.

    In a store without database roles, only the documents of --tenant are checked.

    Example: rag fsck
    """
    violations = check_invariants(Postgres.open(options.settings.store.url), options)
    if options.json:
        print_json({"ok": not violations, "violations": [asdict(violation) for violation in violations]})
    else:
        broken = {violation.invariant for violation in violations}
        for invariant in INVARIANTS:
            if not options.quiet or invariant in broken:
                typer.echo(f"{'broken' if invariant in broken else 'ok':7}{invariant}")
        print_violations(violations)
    if violations:
        raise typer.Exit(1)


def check_invariants(postgres: Postgres, options: GlobalOptions) -> list[Violation]:
    """Checks the invariants with a display of the progress."""
    with (
        postgres.connect("rag_worker") as connection,
        transaction(connection, options.settings.tenant),
        _show_progress(Console(stderr=True, quiet=options.quiet)) as report_progress,
    ):
        return find_violations(connection, report_progress=report_progress)


def print_violations(violations: Sequence[Violation], file: TextIO | None = None) -> None:
    """Prints each row that breaks an invariant, and the commands that repair some of them."""
    for violation in violations:
        typer.echo(f"  {violation.invariant.split()[0]} {violation.tenant}: {violation.subject}", file)
    for invariant in sorted(REPAIRS.keys() & {violation.invariant for violation in violations}):
        typer.echo(f"run `{REPAIRS[invariant]}` to repair: {invariant}", file)


@contextmanager
def _show_progress(console: Console) -> Iterator[ProgressListener]:
    """Shows a bar on a terminal, or else lines of progress."""
    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task, lines = bar.add_task("", total=None), ProgressLines(console)

    def show(invariant: str, checked: int, total: int) -> None:
        bar.update(task, description=invariant, completed=checked, total=total or None)
        lines.print(f"{invariant}: {checked} of {total} chunks" if total else invariant)

    with bar:
        yield show
