"""`rag store`: the embedded server, and maintenance of any store."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from rag_cli.dump import dump, restore
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.steps import show_steps
from rag_cli.terminal.tables import print_rows
from rag_core.errors import EncryptionError, UsageError
from rag_core.storage import embedded, schema
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres, redact_dsn, translate_statement_errors
from rag_core.storage.reencryption import encrypt_rows
from rag_core.storage.retention import delete_old_rows
from rag_core.wiring.encryption import build_cipher

app = typer.Typer(help="The store: an embedded Postgres that starts when needed, or your own.", no_args_is_help=True)
app.command()(dump)
app.command()(restore)


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
def migrate(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the missing migrations, and change nothing.")
    ] = False,
    *,
    options: GlobalOptions,
) -> None:
    """Bring the schema of the store to the version of this program.

    Every command that uses the store does the same when it starts. Run this one in an upgrade before new gateways
    start. Old and new gateways answer meanwhile. An interrupted migration continues when the command is repeated.

    Example: rag store migrate --dry-run
    """
    postgres = Postgres.open_unmigrated(options.settings.store.url)
    with translate_statement_errors(), postgres.connect("rag_owner") as connection:
        schema.check_compatible(connection)
        rows = [
            {"number": row.number, "name": row.name, "kind": row.kind, "locks": row.locks}
            for row in schema.list_pending(connection)
        ]
    if rows and not dry_run:
        with show_steps(options) as report_step:
            postgres.migrate(lambda migration, changed: report_step(f"{migration.name} {changed or ''}"))
    print_rows(rows, ("number", "name", "kind", "locks"), options, "the schema is up to date")


@app.command()
@command
def maintain(options: GlobalOptions) -> None:
    """Bring the indexes and statistics of all collections up to date.

    Builds the vector indexes of large collections and drops those that are not needed, completes and merges the
    segments of the lexical index, removes rows that break the invariants of the graph, and refreshes statistics.

    Every sync does the same for its collection, except for the graph. Searches and syncs continue meanwhile.

    Also deletes what is older than the days of the section `retention`: answers with their feedback, conversations,
    uploads of failed documents, events of jobs, jobs, and whole months of the audit.

    Example: rag store maintain
    """
    settings = options.settings
    with Console(stderr=True, quiet=options.quiet).status("updating indexes and statistics"):
        postgres = Postgres.open(settings.store.url)
        changes = [
            *Maintenance().run_all(postgres, settings.tenant),
            *delete_old_rows(postgres, settings.tenant, settings.retention.model_dump()),
        ]
    rows = [asdict(change) for change in changes]
    print_rows(rows, ("action", "subject", "collection", "seconds"), options, "nothing to do")


@app.command()
@command
def encrypt(options: GlobalOptions) -> None:
    """Encrypt the stored conversations and feedback with the active key.

    Encrypts what was stored before `encryption.active` was set or changed; gateways can run meanwhile. A second call
    continues after an interruption, and does nothing if all texts have the active key. Rows whose key is missing are
    left as they are, and the exit code is 1.

    Example: rag store encrypt
    """
    settings = options.settings
    if not settings.encryption.active:
        raise UsageError("encryption.active must name a key that encrypts the texts, got none")
    with Console(stderr=True, quiet=options.quiet).status("encrypting"):
        cipher = build_cipher(settings.encryption)
        tables = list(encrypt_rows(Postgres.open(settings.store.url), settings.tenant, cipher))
    print_rows([asdict(table) for table in tables], ("table", "encrypted", "unreadable"), options, "")
    if unreadable := sum(table.unreadable for table in tables):
        raise EncryptionError(f"{unreadable} rows have a key that encryption.keys lacks; add it and repeat")
