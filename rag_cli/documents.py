"""`rag documents`."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rag_cli.connections import claim_sources, open_catalog
from rag_cli.terminal.confirmation import require_confirmation
from rag_cli.terminal.consoles import stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_facts, print_more, print_rows
from rag_core.parsing.flags import FLAGS
from rag_core.types import DEFAULT_COLLECTION, DocumentStatus

app = typer.Typer(help="Documents: list, show, print, delete and release them.", no_args_is_help=True)
CollectionOption = Annotated[str, typer.Option(help="The collection.")]
UriArgument = Annotated[str, typer.Argument(help="The uri of the document, as in `rag documents list`.")]


@app.command("list")
@command
def list_(
    options: GlobalOptions,
    collection: CollectionOption = DEFAULT_COLLECTION,
    status: Annotated[
        DocumentStatus | None, typer.Option(help="Only documents with this status.", show_default=False)
    ] = None,
    after: Annotated[str, typer.Option(help="Start after this uri.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(help="The maximum number of documents.", min=1)] = 100,
) -> None:
    """List the documents of a collection with their status and flags, in the order of their uris.

    Example: rag documents list --status failed
    """
    with open_catalog(options) as catalog:
        name = catalog.collection(collection).name
        rows = catalog.documents(name, status=status, after=after, limit=limit + 1)
    columns = ("uri", "status", "chunks", "groups", "title", "reason")
    page = rows[:limit]
    if not options.json:
        page = [
            {**row, "reason": row["reason"] or _render_flags(row["metadata"]), "groups": ", ".join(row["groups"])}
            for row in page
        ]
    print_rows(page, columns, options, f"no matching documents in {collection}")
    if len(rows) > limit:
        print_more(f"--after {rows[limit - 1]['uri']}", options)


@app.command()
@command
def show(uri: UriArgument, options: GlobalOptions, collection: CollectionOption = DEFAULT_COLLECTION) -> None:
    """Show the status, metadata and chunks of a document.

    Example: rag documents show file:///srv/docs/keys.md
    """
    with open_catalog(options) as catalog:
        document = catalog.document(catalog.collection(collection).name, uri)
        chunks = catalog.chunks(document["id"])
    if options.json:
        print_json({**document, "chunks": chunks})
        return
    print_facts(document)
    console = stdout_console()
    for chunk in chunks:
        heading = f"{chunk['ordinal']}  [{chunk['start']}:{chunk['end']}]  {chunk['prefix']}".replace("\n", " | ")
        console.print(heading, style="bold cyan", markup=False)
        console.print(chunk["text"], markup=False)


@app.command()
@command
def text(uri: UriArgument, options: GlobalOptions, collection: CollectionOption = DEFAULT_COLLECTION) -> None:
    """Print the stored text of a document. The offsets of its chunks count its characters.

    Example: rag documents text file:///srv/docs/keys.md
    """
    with open_catalog(options) as catalog:
        stored_text = catalog.text(catalog.document(catalog.collection(collection).name, uri)["id"])
    if options.json:
        print_json({"uri": uri, "text": stored_text})
    else:
        typer.echo(stored_text)


@app.command()
@command
def delete(
    uris: Annotated[
        list[str], typer.Argument(metavar="URI...", help="The uris of documents, as in `rag documents list`.")
    ],
    options: GlobalOptions,
    collection: CollectionOption = DEFAULT_COLLECTION,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete documents with their chunks and vectors. If one of them does not exist, none is deleted.

    The next `rag ingest` of a source adds its documents again. To keep a document out, remove it from the source, or
    exclude it with `files.exclude`. Excluding a document also deletes it, at the next `rag ingest`.

    Example: rag documents delete file:///srv/docs/old-keys.md --yes
    """
    with claim_sources(options, collection) as catalog:
        documents = [catalog.document(collection, uri) for uri in dict.fromkeys(uris)]
        chunks = sum(document["chunks"] for document in documents)
        question = f"Delete {len(documents)} documents of {collection} with {chunks} chunks?"
        require_confirmation(question, options, confirmed=yes)
        catalog.drop_documents(collection, [document["id"] for document in documents])
    if options.json:
        print_json({"deleted": [document["uri"] for document in documents], "chunks": chunks})
    else:
        message = (
            f"deleted {len(documents)} documents with {chunks} chunks; "
            "the next `rag ingest` adds them again if they are still in their source"
        )
        stdout_console(options.quiet).print(message, markup=False)


@app.command()
@command
def release(uri: UriArgument, options: GlobalOptions, collection: CollectionOption = DEFAULT_COLLECTION) -> None:
    """Ingest a quarantined document at the next sync. If its bytes have changed by then, it is scanned again.

    Example: rag documents release file:///srv/docs/about-attacks.md
    """
    with open_catalog(options) as catalog:
        reason = catalog.release(collection, uri)
    if options.json:
        print_json({"uri": uri, "released": True, "reason": reason})
    else:
        message = f"released; the reason for quarantine was: {reason}\nthe next `rag ingest` ingests it"
        stdout_console(options.quiet).print(message, markup=False)


def _render_flags(metadata: Mapping[str, Any]) -> str:
    """The flags of a document; empty if it has none."""
    flags = metadata.get(FLAGS, ())
    return f"flags: {', '.join(flags)}" if flags else ""
