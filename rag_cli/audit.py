"""`rag audit`."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from rag_cli.connections import open_store
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_facts, print_more, print_rows
from rag_core.errors import UsageError
from rag_core.storage.audit_chain import BEGINNING, ChainEnd
from rag_core.storage.audit_reading import Audit, Verification, verify_export

app = typer.Typer(
    help="The audit: list what was done, verify that no row was changed, export it.", no_args_is_help=True
)


@app.command("list")
@command
def list_(
    options: GlobalOptions,
    user: Annotated[str | None, typer.Option(help="Only rows of this user.", show_default=False)] = None,
    operation: Annotated[
        str | None, typer.Option(help="Only rows of this operation, such as documents.delete.", show_default=False)
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(help="Only rows that were written at this time or later, in UTC.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(help="The maximum number of rows.", min=1)] = 100,
) -> None:
    """List the rows of the tenant's audit, newest first.

    Example: rag audit list --user ada --operation documents.delete
    """
    start = since.replace(tzinfo=UTC) if since else None
    with _open_audit(options) as audit:
        rows = audit.list_entries(user, operation, start, limit + 1)
    page = rows[:limit]
    if not options.json:
        page = [{**row, "resource": " ".join([row["resource"]["kind"], *row["resource"]["ids"][:1]])} for row in page]
    columns = ("n", "at", "user", "operation", "resource", "status", "duration_ms", "correlation_id")
    defaults = {"duration_ms": None, "correlation_id": ""}
    print_rows([{**defaults, **row} for row in page], columns, options, "no matching rows")
    if len(rows) > limit:
        print_more(f"--limit {2 * limit}", options)


@app.command()
@command
def verify(
    options: GlobalOptions,
    file: Annotated[
        Path | None, typer.Option(help="Verify an exported file instead of the store.", show_default=False)
    ] = None,
    known: Annotated[
        str,
        typer.Option(metavar="N:HASH", help="The last row of an earlier check, as it was printed.", show_default=False),
    ] = "",
) -> None:
    """Check the chain of hashes. The exit code is 1 if a row was changed, deleted or inserted; the first is shown.

    Keep the last row and its hash somewhere else, and pass it to a later check with --known: if it is still in the
    chain, no row before it was changed.

    Example: rag audit verify
    """
    if file and known:
        raise UsageError("--known applies to the store: omit --file")
    if file:
        with file.open(encoding="utf-8", errors="replace") as lines:
            result = verify_export(lines)
    else:
        with _open_audit(options) as audit:
            result = audit.verify(_parse_known(known))
    _print_verification(result, options)
    if result.broken:
        raise typer.Exit(1)


@app.command()
@command
def export(
    options: GlobalOptions,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Write the rows to this file; only its owner can read it.")],
) -> None:
    """Export all rows as JSON lines, oldest first, with their hashes.

    Example: rag audit export --out audit.jsonl
    """
    with _open_audit(options) as audit, open(out, "w", encoding="utf-8", opener=_open_private) as file:
        count = audit.export(file)
    facts = {"rows": count, "file": str(out)}
    if options.json:
        print_json(facts)
    elif not options.quiet:
        print_facts(facts)


@contextmanager
def _open_audit(options: GlobalOptions) -> Iterator[Audit]:
    with open_store(options).connect() as connection:
        yield Audit(connection, options.settings.tenant)


def _open_private(path: str, flags: int) -> int:
    """Opens a file that only its owner can access, including one that exists already."""
    descriptor = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.fchmod(descriptor, 0o600)
    return descriptor


def _parse_known(known: str) -> ChainEnd:
    number, _, hash = known.partition(":")
    if not known:
        return BEGINNING
    if not number.isdecimal() or not hash:
        raise UsageError(f"--known must be the number and the hash of a row, such as 12:9f86d0…, got {known!r:.60}")
    return ChainEnd(n=int(number), hash=hash)


def _print_verification(result: Verification, options: GlobalOptions) -> None:
    if options.json:
        print_json(asdict(result))
        return
    if not options.quiet:
        print_facts({"intact rows": result.end.n - result.start.n, "last row": f"{result.end.n}:{result.end.hash}"})
    if result.broken:
        typer.echo(f"broken at row {result.broken.n}: {result.broken.reason}", err=True)
