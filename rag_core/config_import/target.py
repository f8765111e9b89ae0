"""What the settings that a foreign configuration is imported over can hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rag_core.config import (
    CrossEncoderReranker,
    HybridRetriever,
    LateInteractionReranker,
    Settings,
    find_reranked_retriever,
    walk,
)
from rag_core.wiring.chunking import max_chunk_tokens
from rag_core.wiring.embedding import embedding_space


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The profile to import over, its embedding model, the names of its legs, and its models for legs and rerankers.

    `max_tokens` is the length of the largest chunk that fits the model's window with a prefix. `rerankers` holds the
    sections of rerankers that have a model, by type.
    """

    profile: str
    model: str
    dimension: int
    max_tokens: int
    legs: tuple[str, ...]
    has_splade: bool
    rerankers: Mapping[str, Mapping[str, Any]]


def describe_target(settings: Settings) -> Target:
    """Raises ModelError if the files of the embedding model are missing."""
    space = embedding_space(settings.embedding)
    hybrids = [part for part in walk(settings.retrieval) if isinstance(part, HybridRetriever)]
    reranked = find_reranked_retriever(settings.retrieval)
    reranker = reranked.reranker if reranked else None
    has_model = isinstance(reranker, CrossEncoderReranker | LateInteractionReranker)
    return Target(
        profile=settings.profile,
        model=space.model,
        dimension=space.dimension,
        max_tokens=max_chunk_tokens(settings.embedding),
        legs=tuple(name for part in hybrids for name in part.retrievers),
        has_splade=settings.splade is not None,
        rerankers={reranker.type: reranker.model_dump(exclude_unset=True)} if reranker and has_model else {},
    )
