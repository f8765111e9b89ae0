"""The training of `ltr` fusion on a dataset. `python -m jobs.train_fusion` is `rag train-fusion`."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from jobs.command_line import run_command
from jobs.evaluate import PlanListener, ingest_dataset
from jobs.ingest import RunnerName
from jobs.stored_dataset import read_stored_dataset
from rag_core.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from rag_core.config import HybridRetriever, RetrievalSettings, Settings
    from rag_core.evaluation.dataset import Dataset
    from rag_core.evaluation.question import Question
    from rag_core.protocols import Ranking
    from rag_core.retrieval.fusion import Candidates
    from rag_core.retrieval.hybrid import Hybrid
    from rag_core.storage.postgres import Postgres

COEFFICIENT_DIGITS = 4

LabelledCandidates: TypeAlias = "tuple[Candidates, NDArray[np.bool_]]"
"""The candidates of a question, and a label for each: True if it belongs to a relevant document."""


@dataclass(slots=True)
class RecordingFusion:
    """A fusion that records its candidates and returns an empty ranking, so that no text is fetched."""

    candidates: "list[Candidates]" = field(default_factory=list)

    def __call__(self, candidates: "Candidates") -> "Ranking":
        self.candidates.append(candidates)
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedFusion:
    """The setting `fusion`, learned from `learned_questions` of all `questions`."""

    setting: Mapping[str, Any]
    learned_questions: int
    questions: int


def train_fusion(
    dataset: "Dataset", settings: "Settings", postgres: "Postgres", collection: str, on_plan: PlanListener
) -> TrainedFusion:
    """Ingests the dataset, and learns `ltr` fusion from the candidates of each question.

    Raises ConfigError if the profile has no hybrid retriever, and DatasetError if no question can be learned from.
    """
    hybrid_settings = settings.model_copy(update={"retrieval": find_hybrid(settings.retrieval)})
    ingest_dataset(dataset, collection, postgres, settings, RunnerName.auto, on_plan)
    candidates = asyncio.run(_collect_candidates(hybrid_settings, postgres, collection, dataset.questions))
    chunks = {id for question_candidates in candidates for id in question_candidates.ids}
    spans = read_stored_dataset(chunks, dataset, collection, postgres, settings.tenant).chunks
    documents = {id: span.document for id, span in spans.items()}
    learnable = select_learnable(candidates, label_candidates(dataset.questions, candidates, documents))
    setting = {"type": "ltr", **fit_coefficients(learnable)}
    return TrainedFusion(setting=setting, learned_questions=len(learnable), questions=len(dataset.questions))


def find_hybrid(retrieval: "RetrievalSettings") -> "HybridRetriever":
    """The hybrid retriever inside retrievers that reorder or rerank. Raises ConfigError if there is none."""
    from rag_core.config import HybridRetriever, unwrap

    *_, innermost = unwrap(retrieval)
    if not isinstance(innermost, HybridRetriever):
        raise ConfigError(f"fusion can only be trained for a retriever of type hybrid, got {innermost.type}")
    return innermost


def label_candidates(
    questions: "Sequence[Question]", candidates: "Sequence[Candidates]", documents: Mapping[UUID, str]
) -> list[NDArray[np.bool_]]:
    """The labels of each question's candidates: True if a candidate belongs to a relevant document."""
    return [
        np.array([question.grades.get(documents[id], 0) > 0 for id in question_candidates.ids])
        for question, question_candidates in zip(questions, candidates, strict=True)
    ]


def select_learnable(
    candidates: "Sequence[Candidates]", labels: Iterable[NDArray[np.bool_]]
) -> list[LabelledCandidates]:
    """Selects the questions that every leg answered and that have both relevant and other candidates."""
    legs = max((question_candidates.legs for question_candidates in candidates), key=len, default=())
    return [
        (question_candidates, question_labels)
        for question_candidates, question_labels in zip(candidates, labels, strict=True)
        if question_candidates.legs == legs and question_labels.any() and not question_labels.all()
    ]


def fit_coefficients(questions: Sequence[LabelledCandidates]) -> dict[str, Any]:
    """The `intercept`, and the coefficients of z-scores and reciprocal ranks by leg.

    Raises DatasetError if there are no questions.
    """
    from sklearn.linear_model import LogisticRegression

    from rag_core.retrieval.fusion import features

    if not questions:
        raise DatasetError(
            "no question has relevant chunks and others among the candidates of all legs; use more questions"
        )
    legs = questions[0][0].legs
    rows = np.concatenate([features(candidates) for candidates, _ in questions])
    labels = np.concatenate([question_labels for _, question_labels in questions])
    model = LogisticRegression(max_iter=1_000).fit(rows, labels)
    weights = np.round(model.coef_[0].reshape(-1, 2), COEFFICIENT_DIGITS).tolist()
    return {
        "intercept": round(float(model.intercept_[0]), COEFFICIENT_DIGITS),
        "scores": {leg: score for leg, (score, _) in zip(legs, weights, strict=True)},
        "ranks": {leg: rank for leg, (_, rank) in zip(legs, weights, strict=True)},
    }


async def _collect_candidates(
    settings: "Settings", postgres: "Postgres", collection: str, questions: "Sequence[Question]"
) -> "list[Candidates]":
    """The candidates of each question, in the order of the questions."""
    from rag_core.storage.corpus import CorpusReader
    from rag_core.types import Query
    from rag_core.wiring.models import RemoteModels
    from rag_core.wiring.retrieval import build_retriever

    corpus, remote, fusion = CorpusReader(postgres), RemoteModels(), RecordingFusion()
    try:
        retriever = replace(cast("Hybrid", build_retriever(settings, corpus, remote)), fusion=fusion)
        for question in questions:
            await retriever.retrieve(Query(text=question.text, tenant=settings.tenant, collection=collection), 1)
    finally:
        await remote.aclose()
        await corpus.close()
    return fusion.candidates


if __name__ == "__main__":
    run_command("train-fusion")
