"""The encoders of the query path, which compute in threads."""

from collections.abc import Sequence
from typing import Protocol

from anyio import to_thread

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


class ThreadedQueryWeigher:
    """A QueryWeigher that encodes in a thread, for the same reason."""

    def __init__(self, encoder: QuestionWeigher) -> None:
        self._encoder = encoder

    async def weigh(self, texts: Sequence[str]) -> list[TermWeights]:
        return await to_thread.run_sync(self._encoder.weigh_questions, texts)
