"""`rag documents`."""

from typing import Annotated

import typer

from jobs.confirmation import want_yes
from jobs.options import Globals, command, output, print_json
from rag_cli.connections import catalog, claimed
from rag_cli.output import show_facts, show_rows, tell_more
from rag_core.types import DEFAULT_COLLECTION, DocumentStatus

app = typer.Typer(help="Documents: what is stored, and what is not and why.", no_args_is_help=True)
CollectionOption = Annotated[str, typer.Option(help="The collection.")]
UriArgument = Annotated[str, typer.Argument(help="The document, as `rag documents list` shows it.")]


@app.command("list")
@command
def list_(
    options: Globals,
    collection: CollectionOption = DEFAULT_COLLECTION,
    status: Annotated[DocumentStatus | None, typer.Option(help="Only these.", show_default=False)] = None,
    after: Annotated[str, typer.Option(help="Go on behind this uri.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(help="How many at the most.", min=1)] = 100,
) -> None:
    """The documents of a collection with their state, in the order of their uri.

    Example: rag documents list --status failed
    """
    with catalog(options) as known:
        name = known.collection(collection).name
        rows = known.documents(name, status=status, after=after, limit=limit + 1)
    columns = ("uri", "status", "chunks", "title", "reason")
    show_rows(rows[:limit], columns, options, f"no such documents in {collection}")
    if len(rows) > limit:
        tell_more(f"--after {rows[limit - 1]['uri']}", options)


@app.command()
@command
def show(uri: UriArgument, options: Globals, collection: CollectionOption = DEFAULT_COLLECTION) -> None:
    """A document's state, metadata and chunks.

    Example: rag documents show file:///srv/docs/keys.md
    """
    with catalog(options) as known:
        document = known.document(known.collection(collection).name, uri)
        chunks = known.chunks(document["id"])
    if options.json:
        print_json({**document, "chunks": chunks})
        return
    show_facts(document)
    console = output()
    for chunk in chunks:
        heading = f"{chunk['ordinal']}  [{chunk['start']}:{chunk['end']}]  {chunk['prefix']}".replace("\n", " | ")
        console.print(heading, style="bold cyan", markup=False)
        console.print(chunk["text"], markup=False)


@app.command()
@command
def text(uri: UriArgument, options: Globals, collection: CollectionOption = DEFAULT_COLLECTION) -> None:
    """A document's text as it is stored: what the offsets of its chunks count in.

    Example: rag documents text file:///srv/docs/keys.md
    """
    with catalog(options) as known:
        stored = known.text(known.document(known.collection(collection).name, uri)["id"])
    if options.json:
        print_json({"uri": uri, "text": stored})
    else:
        typer.echo(stored)


@app.command()
@command
def delete(
    uris: Annotated[list[str], typer.Argument(metavar="URI...", help="Documents, as `rag documents list` shows them.")],
    options: Globals,
    collection: CollectionOption = DEFAULT_COLLECTION,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete documents with their chunks and vectors; all of them, or none if one is not there.

    A collection follows its sources: what is still at its source is added again by the next `rag ingest` of it. To keep
    a document out, remove it there, or exclude it with `files.exclude`, which also deletes it.

    Example: rag documents delete file:///srv/docs/old-keys.md --yes
    """
    with claimed(options, collection) as known:
        documents = [known.document(collection, uri) for uri in dict.fromkeys(uris)]
        chunks = sum(document["chunks"] for document in documents)
        question = f"Delete {len(documents)} documents of {collection} with {chunks} chunks?"
        want_yes(question, options, given=yes)
        known.drop_documents(collection, [document["id"] for document in documents])
    if options.json:
        print_json({"deleted": [document["uri"] for document in documents], "chunks": chunks})
    else:
        told = "what is still at its source is added again by the next `rag ingest` of it"
        output(options.quiet).print(f"deleted {len(documents)} documents with {chunks} chunks; {told}", markup=False)


@app.command()
@command
def release(uri: UriArgument, options: Globals, collection: CollectionOption = DEFAULT_COLLECTION) -> None:
    """Let a quarantined document in at the next sync, as long as it holds the same bytes; a change is scanned again.

    Example: rag documents release file:///srv/docs/about-attacks.md
    """
    with catalog(options) as known:
        reason = known.release(collection, uri)
    if options.json:
        print_json({"uri": uri, "released": True, "reason": reason})
    else:
        output(options.quiet).print(f"released, although: {reason}\nthe next `rag ingest` takes it in", markup=False)
