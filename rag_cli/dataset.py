"""`rag dataset`."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from rag_cli.connections import open_catalog, open_replies
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_facts, print_rows
from rag_core.errors import UsageError
from rag_core.evaluation.imports.format import Format
from rag_core.types import DEFAULT_COLLECTION

app = typer.Typer(help="Datasets for evaluations: documents, questions, and what is right.", no_args_is_help=True)

FolderArgument: TypeAlias = Annotated[
    Path, typer.Argument(help="A folder with a corpus, questions, and what is right.")
]
Origin: TypeAlias = Literal["replies"]
SplitOption: TypeAlias = Annotated[str, typer.Option(help="The split: grades are read from qrels/SPLIT.tsv.")]


@app.command()
@command
def check(folder: FolderArgument, options: GlobalOptions, split: SplitOption = "test") -> None:
    """Count what a dataset contains, and list every rule that its files break.

    The exit code is 1 if a rule is broken.

    Example: rag dataset check data/scifact
    """
    from rag_core.evaluation.dataset_check import check_dataset

    checked = check_dataset(folder, split)
    if options.json:
        print_json({"ok": not checked.problems, **checked.facts, "problems": checked.problems})
    else:
        print_facts(checked.facts)
        _print_problems(checked.problems)
    if checked.problems:
        raise typer.Exit(1)


@app.command()
@command
def show(
    folder: FolderArgument,
    options: GlobalOptions,
    split: SplitOption = "test",
    limit: Annotated[int, typer.Option(min=1, help="The number of questions to show.")] = 10,
) -> None:
    """Show the first questions of a dataset, with their references and the documents that are relevant.

    Example: rag dataset show data/scifact --limit 3
    """
    from rag_core.evaluation.claims import has_claims, read_claims
    from rag_core.evaluation.dataset import read_dataset
    from rag_core.evaluation.metrics import relevant_ids
    from rag_core.evaluation.scripted_conversations import has_scripts, read_scripts

    if has_claims(folder):
        claims = [asdict(claim) for claim in read_claims(folder)[:limit]]
        print_rows(claims, claims[0].keys(), options, "no claims")
        return
    if has_scripts(folder):
        turns = [
            {"conversation": script.id, "turn": position, **asdict(turn)}
            for script in read_scripts(folder, split, limit)
            for position, turn in enumerate(script.turns, start=1)
        ]
        print_rows(turns, turns[0].keys(), options, "no conversations")
        return
    rows = [
        {
            "question_id": question.id,
            "question": question.text,
            "answerable": question.answerable,
            "references": list(question.references),
            "relevant": relevant_ids(question.grades),
        }
        for question in read_dataset(folder, split).asked[:limit]
    ]
    print_rows(rows, rows[0].keys(), options, "no questions")


def _print_problems(problems: Iterable[str]) -> None:
    for problem in problems:
        typer.echo(f"broken: {problem}")


@app.command()
@command
def boundaries(
    folder: FolderArgument,
    options: GlobalOptions,
    documents: Annotated[int, typer.Option(min=1, help="The highest number of joined documents.")] = 50,
    texts: Annotated[int, typer.Option(min=2, help="The number of texts in each.")] = 10,
    tolerance: Annotated[int, typer.Option(min=0, help="Characters by which a boundary may be wrong.")] = 20,
) -> None:
    """Join texts of the corpus, and measure whether the profile's chunks begin where the texts do.

    Chunks do not overlap here. `evenly` is the F1 of as many boundaries at equal distances.

    Example: rag dataset boundaries data/scifact --set chunking.type=semantic
    """
    from rag_core.evaluation.dataset import find_corpus, read_corpus
    from rag_core.evaluation.joined_texts import join_texts, measure_boundaries
    from rag_core.wiring.chunking import build_chunker, without_overlap

    corpus = find_corpus(folder)
    if corpus.is_dir():
        raise UsageError(f"boundaries are measured in the texts of corpus.jsonl, got files in {corpus}")
    joined = list(join_texts((document.text for document in read_corpus(corpus)), documents, texts))
    if not joined:
        raise UsageError(f"{corpus} must have at least {texts} documents with text")
    measured = measure_boundaries(build_chunker(without_overlap(options.settings)), joined, tolerance)
    facts = {
        "dataset": folder.resolve().name,
        "profile": options.settings.profile,
        "chunker": options.settings.chunking.type,
        "documents": len(joined),
        "boundaries": texts - 1,
        "predicted": round(measured.predicted, 1),
        **{name: round(value, 4) for name, value in asdict(measured.scores).items()},
        "evenly": round(measured.evenly.f1, 4),
    }
    (print_json if options.json else print_facts)(facts)


@app.command("import")
@command
def import_(
    format: Annotated[
        Format,
        typer.Argument(
            metavar="FORMAT",
            help="`beir`, `trec`: a folder. `ragas`, `mtrag`, `claims`: a JSON, JSON Lines or Parquet file.",
            show_default=False,
        ),
    ],
    source: Annotated[Path, typer.Argument(help="The folder or file to read.", show_default=False)],
    target: Annotated[Path, typer.Argument(help="A new or empty folder for the dataset.", show_default=False)],
    options: GlobalOptions,
) -> None:
    """Import a dataset of another project, so that `rag evaluate` can measure it.

    A line that breaks a rule is an error that names it, and then nothing is written.

    Example: rag dataset import ragas testset.jsonl data/testset
    """
    from rag_core.evaluation.dataset_import import import_dataset

    checks = import_dataset(format, source, target)
    if options.json:
        print_json([{**check.facts, "problems": check.problems} for check in checks.values()])
        return
    for check in checks.values():
        print_facts(check.facts)
        _print_problems(check.problems)


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

    with open_replies(options) as replies, open_catalog(options) as catalog:
        counts = write_asked_questions(out, catalog, collection, replies.read())
    facts = {"from": origin, **counts, "folder": str(out)}
    if options.json:
        print_json(facts)
    elif not options.quiet:
        print_facts(facts)
