"""`rag store`: the embedded server, and the upkeep of any."""

from dataclasses import asdict

import typer
from rich.console import Console

from jobs.options import Globals, command, print_json
from rag_cli.output import show_rows
from rag_core.errors import UsageError
from rag_core.storage import embedded
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres, shown

app = typer.Typer(help="The store: a private Postgres that is started when needed, or your own.", no_args_is_help=True)


@app.command()
@command
def status(options: Globals) -> None:
    """Whether the store runs, and where. The embedded one is not started by this, and no schema is changed.

    Example: rag store status
    """
    url = options.settings.store.url
    if url == "embedded":
        dsn = embedded.answering(embedded.data_folder())
        facts = {"store": url, "running": bool(dsn), "folder": str(embedded.data_folder()), "dsn": dsn}
    else:
        Postgres.as_it_is(url).connect().close()
        facts = {"store": shown(url), "running": True, "folder": "", "dsn": shown(url)}
    if options.json:
        print_json(facts)
    else:
        typer.echo(
            f"{facts['store']}: {'running' if facts['running'] else 'stopped'}  {facts['folder']}  {facts['dsn']}"
        )


@app.command()
@command
def stop(options: Globals) -> None:
    """Stop the embedded server; what it stores stays.

    Example: rag store stop
    """
    if (url := options.settings.store.url) != "embedded":
        raise UsageError(f"only the embedded server is stopped by rag, and the store is {shown(url)}")
    stopped = embedded.stop(embedded.data_folder())
    if options.json:
        print_json({"stopped": stopped})
    elif not options.quiet:
        typer.echo("stopped" if stopped else "it was not running")


@app.command()
@command
def maintain(options: Globals) -> None:
    """Build the vector index of every collection that has grown large, drop those not needed, complete and merge the
    segments of the lexical index, remove what breaks the graph's invariants, refresh statistics.

    Every sync does this for its collection, but for the graph. Searches and syncs go on meanwhile.

    Example: rag store maintain
    """
    settings = options.settings
    with Console(stderr=True, quiet=options.quiet).status("bringing indexes and statistics up to date"):
        changes = Maintenance().run_all(Postgres.open(settings.store.url), settings.tenant)
    rows = [asdict(change) for change in changes]
    show_rows(rows, ("action", "subject", "collection", "seconds"), options, "nothing to do")
