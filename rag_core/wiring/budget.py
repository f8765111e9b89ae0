"""What the two named budgets allow a search, stage by stage."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

from rag_core.config import (
    CrossEncoderReranker,
    HybridRetriever,
    LateInteractionReranker,
    LlmReranker,
    PerDocumentRetriever,
    RerankedRetriever,
    RetrievalSettings,
    SignalsRetriever,
    outer_reranked,
)


@dataclass(frozen=True, slots=True)
class Budget:
    """In seconds: of a leg, of the scores that it is asked for once more, of each batch of a reranker, of all of the
    search; and of the sentences' encoding by which an extractive answer is better."""

    leg: float
    fusion: float
    reranked_batch: float
    total: float
    encode: float


BUDGETS = {
    "standard": Budget(leg=0.5, fusion=0.02, reranked_batch=0.2, total=1.0, encode=0.5),
    "realtime": Budget(leg=0.05, fusion=0.005, reranked_batch=0.05, total=0.12, encode=0.05),
}


def stage_limits(name: Literal["standard", "realtime", "none"], retrieval: RetrievalSettings) -> Mapping[str, float]:
    """By the names of the stages that such a retriever has. A language model that reranks has its own limits only."""
    if name == "none":
        return {}
    budget = BUDGETS[name]
    limits = {"encode": budget.encode}
    for leg in _legs(retrieval):
        limits |= {leg: budget.leg, f"{leg} scores": budget.fusion}
    match reranked := outer_reranked(retrieval):
        case None:
            return {**limits, "retrieve": budget.total}
        case RerankedRetriever(reranker=LlmReranker()):
            return limits
        case _:
            return {**limits, "rerank": budget.reranked_batch * _batches(reranked), "retrieve": budget.total}


def _legs(retrieval: RetrievalSettings) -> Iterator[str]:
    match retrieval:
        case HybridRetriever():
            yield from retrieval.retrievers
        case RerankedRetriever() | PerDocumentRetriever() | SignalsRetriever():
            yield from _legs(retrieval.retriever)
        case _:
            yield retrieval.type


def _batches(reranked: RerankedRetriever) -> int:
    """That are read one after the other."""
    match reranked.reranker:
        case CrossEncoderReranker() | LateInteractionReranker() as model:
            return ceil(reranked.depth / model.batch_size)
        case _:
            return 1
