"""An encoder as the query path sees it."""

from collections.abc import Sequence
from typing import Protocol

from anyio import to_thread

from rag_core.types import Matrix


class QuestionEncoder(Protocol):
    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        """Shape (len(texts), dimension), in the order given; rows have length 1."""
        ...


class Questions:
    """Encodes in a thread: a forward pass would hold up the event loop for milliseconds."""

    def __init__(self, encoder: QuestionEncoder) -> None:
        self._encoder = encoder

    async def embed(self, texts: Sequence[str]) -> Matrix:
        return await to_thread.run_sync(self._encoder.embed_questions, texts)
