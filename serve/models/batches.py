"""Calls of many, joined into batches of a token budget, one at a time on a model."""

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

_CHARACTERS = 4
"""That English has to a token, roughly. A model's own tokenizer would read every text twice."""


class BatchSettings(BaseModel):
    """What may change while a replica runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: int = Field(16_384, ge=1, description="of a batch, estimated as a fourth of its characters")
    wait_ms: float = Field(2.0, ge=0, le=1000, description="for others to join, while the model is free")


def batch_settings(given: object) -> BatchSettings:
    """ConfigError names the key, the rule and the value."""
    try:
        return BatchSettings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(["user_config", *map(str, first["loc"])])
        raise ConfigError(f"{key}: {first['msg'].lower()}, got {first['input']!r}") from error


def estimated_tokens(text: str) -> int:
    return len(text) // _CHARACTERS + 1


class Batches(Generic[T, R]):
    """`computed` has one row for each part of all calls that it is given as one. A part above the budget goes alone,
    and a call above it in several batches.

    Calls that come while the model is busy wait together for it to be free, and are batched then: else each would
    already be a small batch of its own.
    """

    def __init__(
        self,
        computed: Callable[[Sequence[T]], Coroutine[Any, Any, R]],
        tokens: Callable[[T], int],
        settings: BatchSettings,
    ) -> None:
        self._computed, self._tokens, self._settings = computed, tokens, settings
        self._waiting, self._free = 0, asyncio.Event()
        self._free.set()
        self._batched: Any = serve.batch(
            max_batch_size=settings.tokens, batch_wait_timeout_s=settings.wait_ms / 1000, batch_size_fn=self._size
        )(self._joined)

    def change(self, user_config: object) -> None:
        """From the next batch on. What breaks a rule is logged, and nothing changes: Serve would stop a replica that
        refuses its `user_config`, and start none in its place that does not."""
        try:
            settings = batch_settings(user_config)
        except ConfigError as error:
            _log.error("%s: it stays at %s", error, self._settings)
            return
        self._settings = settings
        self._batched.set_max_batch_size(settings.tokens)
        self._batched.set_batch_wait_timeout_s(settings.wait_ms / 1000)

    async def of(self, parts: Sequence[T]) -> list[R]:
        """What was computed of the parts, in their order, in one or several pieces."""
        return await asyncio.gather(*map(self._taken, self._pieces(parts)))

    async def _taken(self, piece: Sequence[T]) -> R:
        await self._free.wait()
        self._waiting += 1
        try:
            rows: R = await self._batched(piece)
            return rows
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._free.set()

    async def _joined(self, calls: list[Sequence[T]]) -> list[R]:
        self._free.clear()
        parts = [part for call in calls for part in call]
        # In nobody's name: Serve's own task has the context of the very first call, for ever.
        rows: Any = await asyncio.create_task(self._computed(parts), context=Context())
        ends = accumulate(map(len, calls))
        return [rows[end - len(call) : end] for call, end in zip(calls, ends, strict=True)]

    def _size(self, calls: list[Sequence[T]]) -> int:
        tokens = sum(self._tokens(part) for call in calls for part in call)
        return min(tokens, self._settings.tokens) if len(calls) == 1 else tokens

    def _pieces(self, parts: Sequence[T]) -> list[Sequence[T]]:
        """At least one."""
        pieces, start, tokens = [], 0, 0
        for position, part in enumerate(parts):
            tokens += self._tokens(part)
            if tokens > self._settings.tokens and position > start:
                pieces.append(parts[start:position])
                start, tokens = position, self._tokens(part)
        return [*pieces, parts[start:]]
