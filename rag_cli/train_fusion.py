"""`rag train-fusion`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml

from rag_cli.terminal.consoles import stderr_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.progress import JobProgress


@command
def train_fusion(
    dataset: Annotated[Path, typer.Argument(help="A folder in BEIR's layout: corpus, queries.jsonl, qrels/.")],
    options: GlobalOptions,
    split: Annotated[
        str, typer.Option(help="The split of the dataset: grades are read from qrels/SPLIT.tsv. Evaluate with another.")
    ] = "train",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use only this number of questions, from the first.", show_default=False)
    ] = None,
    collection: Annotated[
        str | None,
        typer.Option(
            help="The collection for the corpus; by default one for this dataset and profile.", show_default=False
        ),
    ] = None,
) -> None:
    """Train the fusion of a profile's hybrid retriever, and print it as YAML for the retriever's setting `fusion`.

    Retrievers that contain the hybrid retriever, such as a reranker, do not affect the training.

    Example: rag train-fusion data/scifact --split train
    """
    from jobs import train_fusion as training
    from jobs.evaluate import collection_name
    from rag_core.evaluation.dataset import read_dataset
    from rag_core.storage.postgres import Postgres

    selected = read_dataset(dataset, split).limit_questions(limit)
    settings = options.settings
    collection = collection or collection_name(selected, settings)
    postgres = Postgres.open(settings.store.url)
    with stderr_console(options.quiet) as console, JobProgress(postgres, settings.tenant, console) as progress:
        trained = training.train_fusion(selected, settings, postgres, collection, progress.begin)
    if not options.quiet:
        typer.echo(f"trained on {trained.learned_questions} of {trained.questions} questions", err=True)
    if options.json:
        print_json(trained.setting)
    else:
        sys.stdout.write(yaml.safe_dump({"fusion": trained.setting}, sort_keys=False))
