"""A second generator for when the first is unavailable."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from rag_core.errors import UnavailableError
from rag_core.protocols import Generator
from rag_core.stage import seconds_left, stage
from rag_core.types import Prompt

FIRST_SHARE = 0.75
"""A model that hangs until the deadline would leave no time for the second generator."""


class Fallback:
    """A Generator that uses `second` if `first` is unavailable before its first piece.

    The stage `model` lasts until the first piece of `first`; if it reports an error, `second` wrote the answer. It can
    take at most `FIRST_SHARE` of the time that is left. If `first` fails later, the answer breaks off.
    """

    def __init__(self, first: Generator, second: Generator) -> None:
        self._first, self._second = first, second

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        pieces = self._first.stream(prompt)
        try:
            async with stage("model", FIRST_SHARE * seconds_left()):
                first_piece = await anext(pieces, "")
        except UnavailableError:
            pieces, first_piece = self._second.stream(prompt), ""
        async with aclosing(pieces):
            if first_piece:
                yield first_piece
            async for piece in pieces:
                yield piece
