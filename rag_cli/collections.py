"""`rag collections`."""

from typing import Annotated

import typer

from rag_cli.connections import claim_sources, open_catalog
from rag_cli.terminal.confirmation import require_confirmation
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_rows

app = typer.Typer(help="Collections: sets of documents that are searched together.", no_args_is_help=True)


@app.command("list")
@command
def list_(options: GlobalOptions) -> None:
    """List the collections and their sizes.

    Example: rag collections list
    """
    with open_catalog(options) as catalog:
        rows = catalog.collections()
    columns = ("name", "documents", "chunks", "sources", "model")
    print_rows(rows, columns, options, "no collections yet; `rag ingest FOLDER` creates one")


@app.command()
@command
def drop(
    name: Annotated[str, typer.Argument(help="The collection.")],
    options: GlobalOptions,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a collection with its sources, documents, chunks and vectors.

    Example: rag collections drop handbook --yes
    """
    with claim_sources(options, name) as catalog:
        question = f"Delete collection {name} with {catalog.count_chunks(name)} chunks?"
        require_confirmation(question, options, confirmed=yes)
        catalog.drop_collection(name)
    if options.json:
        print_json({"dropped": name})
    elif not options.quiet:
        typer.echo(f"dropped {name}")
