"""`rag fsck`."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.progress import ProgressLines
from rag_core.storage.fsck import INVARIANTS, REPAIRS, ProgressListener, find_violations
from rag_core.storage.postgres import Postgres, transaction


@command
def fsck(options: GlobalOptions) -> None:
    """Check the store's invariants for all tenants. The exit code is 1 if one is broken.

    In a store without database roles, only the documents of --tenant are checked.

    Example: rag fsck
    """
    settings = options.settings
    with (
        Postgres.open(settings.store.url).connect("rag_worker") as connection,
        transaction(connection, settings.tenant),
        _show_progress(Console(stderr=True, quiet=options.quiet)) as report_progress,
    ):
        violations = find_violations(connection, report_progress=report_progress)
    if options.json:
        print_json({"ok": not violations, "violations": [asdict(violation) for violation in violations]})
    else:
        broken = Counter(violation.invariant for violation in violations)
        for invariant in INVARIANTS:
            if not options.quiet or broken[invariant]:
                typer.echo(f"{'broken' if broken[invariant] else 'ok':7}{invariant}")
        for violation in violations:
            typer.echo(f"  {violation.invariant.split()[0]} {violation.tenant}: {violation.subject}")
        for invariant in sorted(REPAIRS.keys() & broken.keys()):
            typer.echo(f"run `{REPAIRS[invariant]}` to repair: {invariant}")
    if violations:
        raise typer.Exit(1)


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
