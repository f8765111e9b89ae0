"""The composite version of a pipeline: `{chunker}:{embedder}:{vector_store}:{reranker}`."""

from typing import assert_never
from urllib.parse import quote

from rag_core.config import (
    ChunkingSettings,
    ClinicalChunker,
    EmbeddingSettings,
    FixedChunker,
    HashingEmbedder,
    LocalModel,
    PythonObject,
    RerankerSettings,
    SectionsChunker,
    SemanticChunker,
    SentencesChunker,
    Settings,
    find_reranked_retriever,
)

VECTOR_STORE = "pgvector"


def describe_components(settings: Settings) -> str:
    """Such as `sections-200:all-MiniLM-L6-v2:pgvector:none`. A part has no colon; models have no path.

    Pipelines with equal components can still differ, for example in weights: `pipeline_version` tells them apart.
    """
    reranked = find_reranked_retriever(settings.retrieval)
    parts = (
        _describe_chunker(settings.chunking),
        _describe_embedder(settings.embedding),
        VECTOR_STORE,
        _describe_reranker(reranked.reranker) if reranked else "none",
    )
    return ":".join(quote(part, safe="") for part in parts)


def _describe_chunker(chunking: ChunkingSettings) -> str:
    match chunking:
        case SectionsChunker() | SentencesChunker() | ClinicalChunker() | SemanticChunker():
            return f"{chunking.type}-{chunking.tokens}"
        case FixedChunker():
            return f"{chunking.type}-{chunking.size}-{chunking.unit}"
        case PythonObject():
            return chunking.object
        case _:
            assert_never(chunking)


def _describe_embedder(embedding: EmbeddingSettings) -> str:
    match embedding:
        case HashingEmbedder():
            return f"{embedding.type}-{embedding.dimension}"
        case PythonObject():
            return embedding.object
        case _:
            return _model_name(embedding.model)


def _describe_reranker(reranker: RerankerSettings) -> str:
    match reranker:
        case LocalModel():
            return _model_name(reranker.model)
        case PythonObject():
            return reranker.object
        case _:
            return reranker.type


def _model_name(model: str) -> str:
    """The last part of a folder or of a name on the hub."""
    return model.rstrip("/").rpartition("/")[2]
