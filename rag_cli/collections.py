"""`rag collections`."""

from typing import Annotated

import typer

from jobs.confirmation import want_yes
from jobs.options import Globals, command, print_json
from rag_cli.connections import catalog, claimed
from rag_cli.output import show_rows

app = typer.Typer(help="Collections: what is searched together.", no_args_is_help=True)


@app.command("list")
@command
def list_(options: Globals) -> None:
    """The collections, and how much is in them.

    Example: rag collections list
    """
    with catalog(options) as known:
        rows = known.collections()
    columns = ("name", "documents", "chunks", "sources", "model")
    show_rows(rows, columns, options, "no collections yet: `rag ingest FOLDER` makes one")


@app.command()
@command
def drop(
    name: Annotated[str, typer.Argument(help="The collection.")],
    options: Globals,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a collection with its sources, documents, chunks and vectors.

    Example: rag collections drop handbook --yes
    """
    with claimed(options, name) as known:
        want_yes(f"Delete collection {name} with {known.chunk_count(name)} chunks?", options, given=yes)
        known.drop_collection(name)
    if options.json:
        print_json({"dropped": name})
    elif not options.quiet:
        typer.echo(f"dropped {name}")
