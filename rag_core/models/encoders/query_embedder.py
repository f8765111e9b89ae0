"""The encoders of the query path, which compute in threads."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from anyio import to_thread

from rag_core.protocols import QueryEmbedder
from rag_core.types import Matrix, TermWeights


class QuestionEncoder(Protocol):
    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        """Shape (len(texts), dimension), in the order given; rows have length 1."""
        ...


class QuestionWeigher(Protocol):
    def weigh_questions(self, texts: Sequence[str]) -> list[TermWeights]:
        """One value per text, in the order given."""
        ...


class ThreadedQueryEmbedder:
    """A QueryEmbedder that encodes in a thread: a forward pass would block the event loop for milliseconds."""

    def __init__(self, encoder: QuestionEncoder) -> None:
        self._encoder = encoder

    async def embed(self, texts: Sequence[str]) -> Matrix:
        return await to_thread.run_sync(self._encoder.embed_questions, texts)


class ProtectedQueryEmbedder:
    """A QueryEmbedder that surrounds each call of another with `protect`, the method of a circuit breaker."""

    def __init__(self, embedder: QueryEmbedder, protect: Callable[[], AbstractContextManager[None]]) -> None:
        self._embedder, self._protect = embedder, protect

    async def embed(self, texts: Sequence[str]) -> Matrix:
        with self._protect():
            return await self._embedder.embed(texts)


class ThreadedQueryWeigher:
    """A QueryWeigher that encodes in a thread, for the same reason."""

    def __init__(self, encoder: QuestionWeigher) -> None:
        self._encoder = encoder

    async def weigh(self, texts: Sequence[str]) -> list[TermWeights]:
        return await to_thread.run_sync(self._encoder.weigh_questions, texts)
