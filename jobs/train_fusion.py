"""Trains `ltr` fusion on a dataset: `python -m jobs.train_fusion DIR`, and its YAML into the profile."""

import asyncio
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast
from uuid import UUID

import numpy as np
import typer
import yaml
from numpy.typing import NDArray
from rich.console import Console

from jobs.evaluate import ingested
from jobs.evaluation_store import stored_of
from jobs.ingest import RunnerName
from jobs.options import Globals, command, print_json
from jobs.runner import STDERR
from rag_core.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from rag_core.config import HybridRetriever, RetrievalSettings, Settings
    from rag_core.evaluation.dataset import Question
    from rag_core.protocols import Ranking
    from rag_core.retrieval.fusion import Candidates
    from rag_core.retrieval.hybrid import Hybrid
    from rag_core.storage.postgres import Postgres

DIGITS = 4

Labelled: TypeAlias = "tuple[Candidates, NDArray[np.bool_]]"
"""A question's candidates, and whether each is of a relevant document."""


@dataclass(slots=True)
class Watched:
    """A fusion that keeps what it was given, and passes nothing on: nothing has to be fetched."""

    candidates: "list[Candidates]" = field(default_factory=list)

    def __call__(self, candidates: "Candidates") -> "Ranking":
        self.candidates.append(candidates)
        return []


@command
def train_fusion(
    dataset: Annotated[Path, typer.Argument(help="A folder in BEIR's layout: corpus, queries.jsonl, qrels/.")],
    options: Globals,
    split: Annotated[str, typer.Option(help="Whose grades: qrels/SPLIT.tsv. Evaluate with another.")] = "train",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many questions.", show_default=False)
    ] = None,
    collection: Annotated[
        str | None, typer.Option(help="Where the corpus goes; one of its own by default.", show_default=False)
    ] = None,
) -> None:
    """Train the fusion of a profile's hybrid retriever, and print it as the YAML of that retriever's `fusion`.

    What stands around the hybrid, as a reranker does, stays as it is.

    Example: python -m jobs.train_fusion data/scifact --split train
    """
    from rag_core.evaluation.dataset import read_dataset
    from rag_core.storage.postgres import Postgres

    chosen = read_dataset(dataset, split).first(limit)
    settings = options.settings
    hybrid = fused(settings.retrieval)
    name = collection or f"evaluation-{chosen.name}-{settings.profile}"
    postgres = Postgres.open(settings.store.url)
    with os.fdopen(os.dup(STDERR), "w", buffering=1) as terminal:
        console = Console(file=terminal, quiet=options.quiet)
        ingested(chosen, name, postgres, RunnerName.auto, options, console)
    asked = settings.model_copy(update={"retrieval": hybrid})
    candidates = asyncio.run(_candidates(asked, postgres, name, chosen.questions))
    chunks = {id for each in candidates for id in each.ids}
    places = stored_of(chunks, chosen, name, postgres, settings.tenant).chunks
    documents = {id: place.document for id, place in places.items()}
    learnable = usable(candidates, relevant_chunks(chosen.questions, candidates, documents))
    fusion = {"type": "ltr", **fitted(learnable)}
    if not options.quiet:
        typer.echo(f"trained on {len(learnable)} of {len(chosen.questions)} questions", err=True)
    if options.json:
        print_json(fusion)
    else:
        sys.stdout.write(yaml.safe_dump({"fusion": fusion}, sort_keys=False))


def fused(retrieval: "RetrievalSettings") -> "HybridRetriever":
    """The hybrid, in whatever reorders or reranks what it finds. ConfigError if there is none."""
    from rag_core.config import HybridRetriever, PerDocumentRetriever, RerankedRetriever, SignalsRetriever

    match retrieval:
        case HybridRetriever():
            return retrieval
        case RerankedRetriever() | PerDocumentRetriever() | SignalsRetriever():
            return fused(retrieval.retriever)
        case _:
            raise ConfigError(f"fusion is trained for a retriever of type hybrid, got {retrieval.type}")


def relevant_chunks(
    questions: "Sequence[Question]", candidates: "Sequence[Candidates]", documents: Mapping[UUID, str]
) -> list[NDArray[np.bool_]]:
    """By question: whether each candidate is of a relevant document."""
    pairs = zip(questions, candidates, strict=True)
    return [np.array([asked.grades.get(documents[id], 0) > 0 for id in found.ids]) for asked, found in pairs]


def usable(candidates: "Sequence[Candidates]", relevant: Iterable[NDArray[np.bool_]]) -> list[Labelled]:
    """Those questions that something can be learned of: every leg answered, and something relevant was found, and
    something else."""
    legs = max((each.legs for each in candidates), key=len, default=())
    return [
        (each, right)
        for each, right in zip(candidates, relevant, strict=True)
        if each.legs == legs and right.any() and not right.all()
    ]


def fitted(questions: Sequence[Labelled]) -> dict[str, Any]:
    """`intercept`, and by leg the coefficients of z-scores and reciprocal ranks. DatasetError without a question."""
    from sklearn.linear_model import LogisticRegression

    from rag_core.retrieval.fusion import features

    if not questions:
        raise DatasetError("no question has relevant chunks among what the legs found")
    legs = questions[0][0].legs
    rows = np.concatenate([features(found) for found, _ in questions])
    labels = np.concatenate([right for _, right in questions])
    model = LogisticRegression(max_iter=1_000).fit(rows, labels)
    weights = np.round(model.coef_[0].reshape(-1, 2), DIGITS).tolist()
    return {
        "intercept": round(float(model.intercept_[0]), DIGITS),
        "scores": {leg: score for leg, (score, _) in zip(legs, weights, strict=True)},
        "ranks": {leg: rank for leg, (_, rank) in zip(legs, weights, strict=True)},
    }


async def _candidates(
    settings: "Settings", postgres: "Postgres", collection: str, questions: "Sequence[Question]"
) -> "list[Candidates]":
    """One a question, in their order."""
    from rag_core.storage.corpus import CorpusReader
    from rag_core.types import Query
    from rag_core.wiring.retrieval import retriever

    corpus, watched = CorpusReader(postgres), Watched()
    try:
        asked = replace(cast("Hybrid", retriever(settings, corpus)), fusion=watched)
        for question in questions:
            await asked.retrieve(Query(text=question.text, tenant=settings.tenant, collection=collection), 1)
    finally:
        await corpus.close()
    return watched.candidates


def main() -> None:
    app = typer.Typer(add_completion=False)
    app.command()(train_fusion)
    app()


if __name__ == "__main__":
    main()
