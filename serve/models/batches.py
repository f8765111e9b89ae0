"""Batches of concurrent calls. A batch has a maximum number of tokens, and a model computes one batch at a time."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from itertools import accumulate
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ray import serve

from rag_core.errors import ConfigError

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)

_CHARS_PER_TOKEN = 4
"""A rough figure for English. The model's own tokenizer would have to read every text twice."""


class BatchSettings(BaseModel):
    """The settings that can change while a replica runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: int = Field(16_384, ge=1, description="tokens of a batch, estimated as its characters divided by 4")
    wait_ms: float = Field(2.0, ge=0, le=1000, description="time to wait for more calls while the model is free")


def parse_batch_settings(user_config: object) -> BatchSettings:
    """Raises ConfigError with the key, the rule and the value."""
    try:
        return BatchSettings.model_validate(user_config)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(["user_config", *map(str, first["loc"])])
        raise ConfigError(f"{key}: {first['msg'].lower()}, got {first['input']!r}") from error


def estimate_tokens(text: str) -> int:
    return len(text) // _CHARS_PER_TOKEN + 1


class Batches(Generic[T, R]):
    """Joins the parts of concurrent calls into batches. `compute_batch` returns one row per part.

    A part above the token limit is a separate batch, and a call above it is divided into several batches. Calls wait
    while the model is busy, and are joined when it is free; otherwise each would start a small batch.
    """

    def __init__(
        self,
        compute_batch: Callable[[Sequence[T]], Coroutine[Any, Any, R]],
        count_tokens: Callable[[T], int],
        settings: BatchSettings,
    ) -> None:
        self._compute_batch, self._count_tokens, self._settings = compute_batch, count_tokens, settings
        self._starting, self._free = 0, asyncio.Event()
        self._free.set()
        self._enqueue: Any = serve.batch(
            max_batch_size=settings.tokens, batch_wait_timeout_s=settings.wait_ms / 1000, batch_size_fn=self._batch_size
        )(self._compute_calls)

    def reconfigure(self, user_config: object) -> None:
        """Changes the settings of later batches. Invalid settings are logged and ignored.

        Serve would stop a replica that raises here, and could not start another one.
        """
        try:
            settings = parse_batch_settings(user_config)
        except ConfigError as error:
            _log.error("%s; the settings stay %s", error, self._settings)
            return
        self._settings = settings
        self._enqueue.set_max_batch_size(settings.tokens)
        self._enqueue.set_batch_wait_timeout_s(settings.wait_ms / 1000)

    async def compute(self, parts: Sequence[T]) -> list[R]:
        """Returns the rows of the parts in order, divided into one or several pieces."""
        return await asyncio.gather(*map(self._compute_piece, self._split(parts)))

    async def _compute_piece(self, piece: Sequence[T]) -> R:
        await self._free.wait()
        self._starting += 1
        try:
            rows: R = await self._enqueue(piece)
            return rows
        finally:
            self._starting -= 1
            if not self._starting:
                self._free.set()

    async def _compute_calls(self, calls: list[Sequence[T]]) -> list[R]:
        self._free.clear()
        parts = [part for call in calls for part in call]
        # An empty context, because Serve's task keeps the context of the first call for all later batches.
        rows: Any = await asyncio.create_task(self._compute_batch(parts), context=Context())
        ends = accumulate(map(len, calls))
        return [rows[end - len(call) : end] for call, end in zip(calls, ends, strict=True)]

    def _batch_size(self, calls: list[Sequence[T]]) -> int:
        """The tokens of the calls. A single call never counts as more than the limit: Serve would reject it."""
        tokens = sum(self._count_tokens(part) for call in calls for part in call)
        return min(tokens, self._settings.tokens) if len(calls) == 1 else tokens

    def _split(self, parts: Sequence[T]) -> list[Sequence[T]]:
        """Divides a call into pieces within the token limit. The result has at least one piece."""
        pieces, start, tokens = [], 0, 0
        for position, part in enumerate(parts):
            tokens += self._count_tokens(part)
            if tokens > self._settings.tokens and position > start:
                pieces.append(parts[start:position])
                start, tokens = position, self._count_tokens(part)
        return [*pieces, parts[start:]]
