"""`rag fsck`."""

from collections import Counter
from dataclasses import asdict

import typer

from jobs.options import Globals, command, print_json
from rag_core.storage.fsck import INVARIANTS, violations
from rag_core.storage.postgres import Postgres


@command
def fsck(options: Globals) -> None:
    """Check the store's invariants, for all tenants. Exit code 1 if one is broken.

    Example: rag fsck
    """
    with Postgres.open(options.settings.store.url).connect("rag_worker") as connection:
        found = violations(connection)
    if options.json:
        print_json({"ok": not found, "violations": [asdict(violation) for violation in found]})
    else:
        broken = Counter(violation.invariant for violation in found)
        for invariant in INVARIANTS:
            if not options.quiet or broken[invariant]:
                typer.echo(f"{'broken' if broken[invariant] else 'ok':7}{invariant}")
        for violation in found:
            typer.echo(f"  {violation.invariant.split()[0]} {violation.tenant}: {violation.subject}")
    if found:
        raise typer.Exit(1)
