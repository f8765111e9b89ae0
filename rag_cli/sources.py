"""`rag sources`."""

from dataclasses import asdict
from typing import Annotated

import typer

from jobs.confirmation import want_yes
from jobs.options import Globals, command, print_json
from rag_cli.connections import catalog, claimed
from rag_cli.output import show_rows
from rag_core.types import DEFAULT_COLLECTION

app = typer.Typer(help="Sources: what a collection is kept in step with.", no_args_is_help=True)


@app.command("list")
@command
def list_(
    options: Globals,
    collection: Annotated[str | None, typer.Option(help="Only of this collection.", show_default=False)] = None,
) -> None:
    """The sources, and when each was last listed to its end.

    Example: rag sources list
    """
    with catalog(options) as known:
        rows = [asdict(source) for source in known.sources(collection)]
    columns = ("collection", "uri", "documents", "listed_at")
    show_rows(rows, columns, options, "no sources yet: `rag ingest FOLDER` makes one")


@app.command()
@command
def drop(
    uri: Annotated[str, typer.Argument(help="The source, as `rag sources list` shows it.")],
    options: Globals,
    collection: Annotated[str, typer.Option(help="The collection.")] = DEFAULT_COLLECTION,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Forget a source, and delete the documents that came from it.

    Example: rag sources drop file:///srv/docs --yes
    """
    with claimed(options, collection, uri) as known:
        want_yes(f"Delete source {uri} of {collection} with its documents?", options, given=yes)
        known.drop_source(collection, uri)
    if options.json:
        print_json({"dropped": uri})
    elif not options.quiet:
        typer.echo(f"dropped {uri}")
