"""Questions as models have encoded them, for legs that are asked about each more than once."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from rag_core.stage import stage

T = TypeVar("T")

REMEMBERED = 64
"""Questions that are kept: more than are asked at once in one process."""


class Remembered(Generic[T]):
    def __init__(self, encode: Callable[[str], Awaitable[T]]) -> None:
        self._encode = encode
        self._encoded: dict[str, T] = {}

    async def of(self, question: str) -> T:
        encoded = self._encoded.pop(question, None)
        if encoded is None:
            async with stage("embed"):
                encoded = await self._encode(question)
            if len(self._encoded) >= REMEMBERED:
                del self._encoded[next(iter(self._encoded))]
        self._encoded[question] = encoded  # behind those that were asked before
        return encoded
