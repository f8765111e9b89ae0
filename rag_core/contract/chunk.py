"""The chunks that the functions return and take: dictionaries, whose values can be read as attributes too."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from rag_core.types import Metadata

CHUNK_KEYS = ("chunk_id", "text", "similarity_score", "source", "metadata")


class RetrievedChunk(dict[str, Any]):
    """A dictionary with the keys `CHUNK_KEYS`. `scores` is an attribute only: the raw score of each stage.

    `similarity_score` is from 0 to 1. `source` is `vector`, `keyword`, `graph`, or `hybrid` if several methods were
    merged. `metadata` is that of document and chunk, with the document's `uri`, `title` and `language`.
    """

    def __init__(
        self,
        *,
        chunk_id: UUID,
        text: str,
        similarity_score: float,
        source: str,
        metadata: Metadata,
        scores: Mapping[str, float],
    ) -> None:
        super().__init__(
            chunk_id=chunk_id, text=text, similarity_score=similarity_score, source=source, metadata=metadata
        )
        self.scores = scores

    @property
    def chunk_id(self) -> UUID:
        id: UUID = self["chunk_id"]
        return id

    @property
    def text(self) -> str:
        return str(self["text"])

    @property
    def similarity_score(self) -> float:
        return float(self["similarity_score"])

    @property
    def source(self) -> str:
        return str(self["source"])

    @property
    def metadata(self) -> Metadata:
        metadata: Metadata = self["metadata"]
        return metadata

    def rescored(self, stage: str, score: float, similarity_score: float) -> "RetrievedChunk":
        """The chunk with this score of the stage among its `scores`, and another `similarity_score`."""
        return RetrievedChunk(
            chunk_id=self.chunk_id,
            text=self.text,
            similarity_score=similarity_score,
            source=self.source,
            metadata=self.metadata,
            scores={**self.scores, stage: score},
        )


def read_chunks(chunks: Sequence[Mapping[str, Any]]) -> list[RetrievedChunk]:
    """The chunks of a caller, without keys that are not in `CHUNK_KEYS`.

    Raises ValueError if a chunk lacks a key, or if its `chunk_id` is not a UUID.
    """
    return [_read_chunk(f"chunks[{position}]", chunk) for position, chunk in enumerate(chunks)]


def _read_chunk(place: str, chunk: Mapping[str, Any]) -> RetrievedChunk:
    if missing := [key for key in CHUNK_KEYS if key not in chunk]:
        raise ValueError(f"{place} must have the keys {', '.join(CHUNK_KEYS)}; missing: {', '.join(missing)}")
    try:
        id = UUID(str(chunk["chunk_id"]))
    except ValueError:
        raise ValueError(f"{place}: chunk_id must be a UUID, got {chunk['chunk_id']!r:.60}") from None
    scores = chunk.scores if isinstance(chunk, RetrievedChunk) else {}
    values = {key: chunk[key] for key in CHUNK_KEYS}
    return RetrievedChunk(**{**values, "chunk_id": id}, scores=scores)
