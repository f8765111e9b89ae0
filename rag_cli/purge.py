"""`rag purge`."""

import re
from dataclasses import asdict
from typing import Annotated

import typer

from rag_cli.connections import open_store
from rag_cli.terminal.confirmation import require_confirmation
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_rows
from rag_core.errors import UsageError
from rag_core.storage.erasure import ErasureScope
from rag_core.wiring.encryption import build_cipher

DAYS = re.compile(r"([1-9]\d{0,4})d")


@command
def purge(
    options: GlobalOptions,
    user: Annotated[
        str | None,
        typer.Option(help="Erase a user: conversations, answers, pushed documents, jobs, keys.", show_default=False),
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="Erase a conversation, of --user or else of all callers.", show_default=False)
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="90d", help="Erase conversations, answers and ended jobs that are older.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be erased.")] = False,
    rewrite: Annotated[
        bool,
        typer.Option(
            "--rewrite", help="Write the tables again, so that no byte is left in their files; searches wait meanwhile."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Erase what a user, a conversation, a time or a tenant has left, and count what is left of it.

    With --tenant and none of the options, everything of the tenant is erased. The report has every table of the store.
    The exit code is 1 if something is left, such as rows that were added meanwhile: then repeat the command.

    Example: rag purge --user 7f3a --dry-run
    """
    from jobs.purge import purge as run_purge

    if "" in (user, session, options.tenant):
        raise UsageError("--user, --session and --tenant must not be empty")
    if older_than and (user or session):
        raise UsageError("--older-than cannot be combined with --user or --session: run one after the other")
    if not (user or session or older_than is not None or options.tenant):
        raise UsageError("name what to erase: pass --user, --session, --older-than or --tenant")
    tenant = options.settings.tenant
    days = 0 if older_than is None else _parse_days(older_than)
    scope = ErasureScope(tenant=tenant, user=user or "", session=session or "", days=days)
    if not dry_run:
        question = f"Erase {_describe(scope)} of tenant {tenant}? It cannot be undone."
        require_confirmation(question, options, confirmed=yes)
    cipher = build_cipher(options.settings.encryption)
    report = run_purge(open_store(options), scope, dry_run, rewrite, cipher)
    if options.json:
        print_json({"dry_run": dry_run, **asdict(scope), **asdict(report), "left": report.left})
    else:
        rows = [asdict(table) for table in report.tables if table.rows or not options.quiet]
        print_rows(rows, ("table", "rows", "found", "left", "note"), options, "no tables")
        print_rows([asdict(file) for file in report.files], ("file", "found", "left"), options, "no files")
    if report.unreadable:
        problem = f"{report.unreadable} texts cannot be decrypted: log lines that quote them are not recognized"
        typer.echo(f"warning: {problem}", err=True)
    if report.left and not dry_run:
        raise typer.Exit(1)


def _describe(scope: ErasureScope) -> str:
    if scope.session:
        return f"conversation {scope.session} of {scope.user or 'all users'}"
    if scope.user:
        return f"user {scope.user}"
    return f"what is older than {scope.days} days" if scope.days else "everything"


def _parse_days(text: str) -> int:
    """Raises UsageError unless the text is a number of days."""
    if not (match := DAYS.fullmatch(text)):
        raise UsageError(f"--older-than must be a number of days such as 90d, got {text!r}")
    return int(match[1])
