"""`rag fsck`."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from time import monotonic

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jobs.options import Globals, command, print_json
from jobs.progress import TERMINAL_LINE
from rag_core.storage.fsck import INVARIANTS, REPAIRS, Tell, violations
from rag_core.storage.postgres import Postgres


@command
def fsck(options: Globals) -> None:
    """Check the store's invariants, for all tenants. Exit code 1 if one is broken.

    Example: rag fsck
    """
    with (
        Postgres.open(options.settings.store.url).connect("rag_worker") as connection,
        _progress(Console(stderr=True, quiet=options.quiet)) as tell,
    ):
        found = violations(connection, tell=tell)
    if options.json:
        print_json({"ok": not found, "violations": [asdict(violation) for violation in found]})
    else:
        broken = Counter(violation.invariant for violation in found)
        for invariant in INVARIANTS:
            if not options.quiet or broken[invariant]:
                typer.echo(f"{'broken' if broken[invariant] else 'ok':7}{invariant}")
        for violation in found:
            typer.echo(f"  {violation.invariant.split()[0]} {violation.tenant}: {violation.subject}")
        for invariant in sorted(REPAIRS.keys() & broken.keys()):
            typer.echo(f"`{REPAIRS[invariant]}` repairs: {invariant}")
    if found:
        raise typer.Exit(1)


@contextmanager
def _progress(console: Console) -> Iterator[Tell]:
    """A bar on a terminal; elsewhere now and then a line."""
    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task, spoken = bar.add_task("", total=None), monotonic()

    def tell(invariant: str, done: int, of: int) -> None:
        nonlocal spoken
        bar.update(task, description=invariant, completed=done, total=of or None)
        if not console.is_terminal and monotonic() - spoken > TERMINAL_LINE:
            spoken = monotonic()
            line = f"{invariant}: {done} of {of} chunks" if of else invariant
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    with bar:
        yield tell
