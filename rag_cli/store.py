"""`rag store`: the embedded server, and maintenance of any store."""

from dataclasses import asdict

import typer
from rich.console import Console

from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_rows
from rag_core.errors import UsageError
from rag_core.storage import embedded
from rag_core.storage.maintenance import (
    Maintenance,
    remove_old_audit_months,
    remove_old_conversations,
    remove_old_replies,
)
from rag_core.storage.postgres import Postgres, redact_dsn

app = typer.Typer(help="The store: an embedded Postgres that starts when needed, or your own.", no_args_is_help=True)


@app.command()
@command
def status(options: GlobalOptions) -> None:
    """Show where the store is, and if it is running, without starting it or migrating its schema.

    Example: rag store status
    """
    url = options.settings.store.url
    if url == "embedded":
        dsn = embedded.server_dsn(embedded.data_folder())
        facts = {"store": url, "running": bool(dsn), "folder": str(embedded.data_folder()), "dsn": dsn}
    else:
        Postgres.open_unmigrated(url).connect().close()
        facts = {"store": redact_dsn(url), "running": True, "folder": "", "dsn": redact_dsn(url)}
    if options.json:
        print_json(facts)
    else:
        typer.echo(
            f"{facts['store']}: {'running' if facts['running'] else 'stopped'}  {facts['folder']}  {facts['dsn']}"
        )


@app.command()
@command
def stop(options: GlobalOptions) -> None:
    """Stop the embedded server. Its data are kept.

    Example: rag store stop
    """
    if (url := options.settings.store.url) != "embedded":
        raise UsageError(f"rag can only stop the embedded server, but the store is {redact_dsn(url)}")
    stopped = embedded.stop(embedded.data_folder())
    if options.json:
        print_json({"stopped": stopped})
    elif not options.quiet:
        typer.echo("stopped" if stopped else "the server was not running")


@app.command()
@command
def maintain(options: GlobalOptions) -> None:
    """Bring the indexes and statistics of all collections up to date.

    Builds the vector indexes of large collections and drops those that are not needed, completes and merges the
    segments of the lexical index, removes rows that break the invariants of the graph, and refreshes statistics.

    Every sync does the same for its collection, except for the graph. Searches and syncs continue meanwhile.

    Also deletes the answers and the feedback that are older than `retention.replies` days, and the conversations whose
    last message is older than `retention.conversations` days. Months of the audit are deleted as a whole after
    `retention.audit` days.

    Example: rag store maintain
    """
    settings = options.settings
    with Console(stderr=True, quiet=options.quiet).status("updating indexes and statistics"):
        postgres = Postgres.open(settings.store.url)
        changes = [
            *Maintenance().run_all(postgres, settings.tenant),
            *remove_old_replies(postgres, settings.tenant, settings.retention.replies),
            *remove_old_conversations(postgres, settings.tenant, settings.retention.conversations),
            *remove_old_audit_months(postgres, settings.retention.audit),
        ]
    rows = [asdict(change) for change in changes]
    print_rows(rows, ("action", "subject", "collection", "seconds"), options, "nothing to do")
