"""`rag dataset`."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from rag_cli.connections import open_store
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_facts
from rag_core.types import DEFAULT_COLLECTION

app = typer.Typer(help="Datasets for evaluations: documents, questions, and what is right.", no_args_is_help=True)

Origin: TypeAlias = Literal["replies"]


@app.command()
@command
def make(
    options: GlobalOptions,
    origin: Annotated[Origin, typer.Option("--from", help="`replies`: questions that people asked a gateway.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A new or empty folder for the dataset.")],
    collection: Annotated[str, typer.Option(help="The collection that was asked.")] = DEFAULT_COLLECTION,
) -> None:
    """Make a dataset of a collection from the questions that people asked, and from their feedback.

    Each document that a liked answer cites has grade 1. Corrected answers become references. All questions are in the
    split `train`, and every line names its origin; label some for a test split yourself.

    Example: rag dataset make --from replies --out data/asked
    """
    from rag_core.evaluation.asked_questions import write_asked_questions
    from rag_core.storage.catalog import Catalog
    from rag_core.storage.replies import Replies

    tenant = options.settings.tenant
    with open_store(options).connect() as connection:
        replies = list(Replies(connection, tenant).read())
        counts = write_asked_questions(out, Catalog(connection, tenant), collection, replies)
    facts = {"from": origin, **counts, "folder": str(out)}
    if options.json:
        print_json(facts)
    elif not options.quiet:
        print_facts(facts)
