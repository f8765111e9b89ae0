"""A second generator for when the first one does not give a word."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from rag_core.errors import UnavailableError
from rag_core.protocols import Generator
from rag_core.stage import stage
from rag_core.types import Prompt


class Fallback:
    """The stage `model` is the first one's until its first piece: if that is reported with an error, the second one
    wrote the answer. If the first one breaks off later, so does the answer."""

    def __init__(self, first: Generator, second: Generator) -> None:
        self._first, self._second = first, second

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        async with aclosing(await self._begun(prompt)) as pieces:
            async for piece in pieces:
                yield piece

    async def _begun(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        pieces = self._first.stream(prompt)
        try:
            async with stage("model"):
                return _continued(await anext(pieces, ""), pieces)
        except UnavailableError:
            return self._second.stream(prompt)


async def _continued(begun: str, pieces: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    async with aclosing(pieces):
        if begun:
            yield begun
        async for piece in pieces:
            yield piece
