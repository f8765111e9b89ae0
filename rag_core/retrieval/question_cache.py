"""The cache of encoded questions, for legs that encode the same question to rank and to score."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from rag_core.stage import stage

T = TypeVar("T")

MAX_CACHED_QUESTIONS = 64
"""More than a process answers at the same time."""


class QuestionCache(Generic[T]):
    """Encodes questions in a stage "embed", and keeps the most recently used results."""

    def __init__(self, encode: Callable[[str], Awaitable[T]]) -> None:
        self._encode = encode
        self._results: dict[str, T] = {}

    async def get(self, question: str) -> T:
        result = self._results.pop(question, None)
        if result is None:
            async with stage("embed"):
                result = await self._encode(question)
            if len(self._results) >= MAX_CACHED_QUESTIONS:
                del self._results[next(iter(self._results))]
        self._results[question] = result  # at the end: the most recently used
        return result
