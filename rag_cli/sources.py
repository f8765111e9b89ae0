"""`rag sources`."""

from dataclasses import asdict
from typing import Annotated

import typer

from rag_cli.connections import claim_sources, open_catalog
from rag_cli.terminal.confirmation import require_confirmation
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_rows
from rag_core.types import DEFAULT_COLLECTION

app = typer.Typer(help="Sources: the folders, files and URIs that a collection is synced with.", no_args_is_help=True)


@app.command("list")
@command
def list_(
    options: GlobalOptions,
    collection: Annotated[
        str | None, typer.Option(help="Only the sources of this collection.", show_default=False)
    ] = None,
) -> None:
    """List the sources, and when each was last listed completely.

    Example: rag sources list
    """
    with open_catalog(options) as catalog:
        rows = [asdict(source) for source in catalog.sources(collection)]
    columns = ("collection", "uri", "documents", "listed_at")
    print_rows(rows, columns, options, "no sources yet; `rag ingest FOLDER` adds one")


@app.command()
@command
def drop(
    uri: Annotated[str, typer.Argument(help="The uri of the source, as in `rag sources list`.")],
    options: GlobalOptions,
    collection: Annotated[str, typer.Option(help="The collection.")] = DEFAULT_COLLECTION,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove a source, and delete its documents.

    Example: rag sources drop file:///srv/docs --yes
    """
    with claim_sources(options, collection, uri) as catalog:
        require_confirmation(f"Delete source {uri} of {collection} with its documents?", options, confirmed=yes)
        catalog.drop_source(collection, uri)
    if options.json:
        print_json({"dropped": uri})
    elif not options.quiet:
        typer.echo(f"dropped {uri}")
