"""Time limits of the stages of a search, for the two named budgets.

A patient caller, such as a command or a script, waits for one answer on a machine that can be busy. Default limits do
not apply to it: they keep a server responsive, and would only cost this caller a part of its hits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

from rag_core.config import (
    CrossEncoderReranker,
    HybridRetriever,
    LateInteractionReranker,
    LlmReranker,
    RerankedRetriever,
    RetrievalSettings,
    Settings,
    find_reranked_retriever,
    unwrap,
)


@dataclass(frozen=True, slots=True)
class Budget:
    """Time limits in seconds.

    `leg` is for one leg, `fusion` for the exact scores that it is asked for afterwards, `rerank_batch` for one batch of
    the reranker, `total` for the whole search. `encode` is for the sentence vectors that improve an extractive answer.
    """

    leg: float
    fusion: float
    rerank_batch: float
    total: float
    encode: float


BUDGETS = {
    "standard": Budget(leg=0.5, fusion=0.02, rerank_batch=0.2, total=1.0, encode=0.5),
    "realtime": Budget(leg=0.05, fusion=0.005, rerank_batch=0.05, total=0.12, encode=0.05),
}


def search_limits(settings: Settings, patient: bool) -> Mapping[str, float]:
    """The limits of a search's stages in seconds, by stage name. A patient caller has only a budget that is set."""
    answering = settings.answering
    if patient and "budget" not in answering.model_fields_set:
        return {}
    return stage_limits(answering.budget, settings.retrieval)


def retriever_timeout(section: HybridRetriever | RerankedRetriever, patient: bool) -> float:
    """The `timeout_ms` of the section in seconds. For a patient caller it is infinite unless it is set."""
    return inf if patient and "timeout_ms" not in section.model_fields_set else section.timeout_ms / 1000


def stage_limits(name: Literal["standard", "realtime", "none"], retrieval: RetrievalSettings) -> Mapping[str, float]:
    """The limits of this retriever's stages in seconds, by stage name.

    A language model that reranks has only the limits of its endpoint.
    """
    if name == "none":
        return {}
    budget = BUDGETS[name]
    limits = {"encode": budget.encode}
    *_, innermost = unwrap(retrieval)
    for leg in innermost.retrievers if isinstance(innermost, HybridRetriever) else [innermost.type]:
        limits |= {leg: budget.leg, f"{leg} scores": budget.fusion}
    match find_reranked_retriever(retrieval):
        case None:
            return {**limits, "retrieve": budget.total}
        case RerankedRetriever(reranker=LlmReranker()):
            return limits
        case RerankedRetriever(reranker=CrossEncoderReranker() | LateInteractionReranker() as model, depth=depth):
            batches = ceil(depth / model.batch_size)  # the model reads them one after the other
        case _:
            batches = 1
    return {**limits, "rerank": budget.rerank_batch * batches, "retrieve": budget.total}
