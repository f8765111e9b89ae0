"""A second generator for when the first is unavailable."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from rag_core.errors import UnavailableError
from rag_core.protocols import Generator
from rag_core.stage import seconds_left, stage
from rag_core.types import Prompt

KEPT_SHARE, MAX_KEPT_SECONDS = 0.25, 5.0
"""The share of the request's remaining time that is kept for the second generator, and the most seconds."""


class Fallback:
    """A Generator that uses `second` if `first` is unavailable before its first piece.

    The stage `model` lasts until the first piece of `first`; if it reports an error, `second` wrote the answer. It ends
    early enough for `second` to write within the request's time. If `first` fails later, the answer breaks off.
    """

    def __init__(self, first: Generator, second: Generator) -> None:
        self._first, self._second = first, second

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        pieces, time_left = self._first.stream(prompt), seconds_left()
        try:
            async with stage("model", time_left - min(MAX_KEPT_SECONDS, KEPT_SHARE * time_left)):
                first_piece = await anext(pieces, "")
        except UnavailableError:
            pieces, first_piece = self._second.stream(prompt), ""
        async with aclosing(pieces):
            if first_piece:
                yield first_piece
            async for piece in pieces:
                yield piece
