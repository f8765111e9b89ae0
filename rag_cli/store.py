"""`rag store`: the embedded server."""

import typer

from jobs.options import Globals, command, print_json
from rag_core.storage import embedded
from rag_core.storage.postgres import Postgres, shown

app = typer.Typer(help="The store: a private Postgres that is started when needed, or your own.", no_args_is_help=True)


@app.command()
@command
def status(options: Globals) -> None:
    """Whether the store runs, and where. The embedded one is not started by this.

    Example: rag store status
    """
    url = options.settings.store.url
    if url == "embedded":
        dsn = embedded.answering(embedded.data_folder())
        facts = {"store": url, "running": bool(dsn), "folder": str(embedded.data_folder()), "dsn": dsn}
    else:
        facts = {"store": shown(url), "running": bool(Postgres.open(url)), "folder": "", "dsn": shown(url)}
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
    stopped = embedded.stop(embedded.data_folder())
    if options.json:
        print_json({"stopped": stopped})
    elif not options.quiet:
        typer.echo("stopped" if stopped else "it was not running")
