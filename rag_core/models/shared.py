"""A model that all requests of a process share, and how it scores their texts."""

from collections.abc import Callable, Sequence, Sized
from functools import partial
from math import isfinite
from threading import Event, Lock
from time import monotonic
from typing import Generic, TypeVar

from anyio import to_thread

from rag_core.errors import ModelError

M = TypeVar("M")
T = TypeVar("T", bound=Sized)

RETRY_SECONDS = 60.0
"""So long a model that could not be loaded is not looked for again: a hub that is away takes seconds to say so."""


class SharedModel(Generic[M]):
    """Loaded once, by `load` or the first request. Used by one thread at a time: a tokenizer whose truncation two
    threads set fails with "Already borrowed". `role` is what its errors call it."""

    def __init__(self, role: str, loading: Callable[[], M]) -> None:
        self._role, self._loading, self._lock = role, loading, Lock()
        self._model: M | None = None
        self._failure, self._again_at = "", 0.0

    def load(self) -> None:
        """Seconds. ModelError if the model, or its device, is not there."""
        with self._lock:
            self._loaded()

    async def score(
        self, prepared: Callable[[M], Callable[[Sequence[T]], list[float]]], texts: Sequence[T], batch_size: int
    ) -> list[float]:
        """In the order given, by the function that `prepared` makes of the model, in a thread. When the caller is
        cancelled, the work ends with the batch at hand."""
        if not texts:
            return []
        abandoned = Event()
        try:
            return await to_thread.run_sync(partial(self._scores, prepared, texts, batch_size, abandoned))
        finally:
            abandoned.set()

    def _scores(
        self,
        prepared: Callable[[M], Callable[[Sequence[T]], list[float]]],
        texts: Sequence[T],
        batch_size: int,
        abandoned: Event,
    ) -> list[float]:
        scores = [0.0] * len(texts)
        with self._lock:
            scoring = prepared(self._loaded())
            for batch in _batches(texts, batch_size):
                if abandoned.is_set():
                    break
                for position, score in zip(batch, self._computed(scoring, [texts[i] for i in batch]), strict=True):
                    scores[position] = score
        return scores

    def _computed(self, scoring: Callable[[Sequence[T]], list[float]], texts: Sequence[T]) -> list[float]:
        try:
            scores = scoring(texts)
        except RuntimeError as error:  # of torch: memory, device
            reason = str(error).partition("\n")[0]
            raise ModelError(
                f"the {self._role} could not compute: try a smaller batch_size, or device cpu ({reason})"
            ) from error
        if not all(map(isfinite, scores)):
            raise ModelError(f"the {self._role} gave a score that is no number: try precision fp32")
        return scores

    def _loaded(self) -> M:
        if self._model is None:
            if self._failure and monotonic() < self._again_at:
                raise ModelError(self._failure)
            self._model = self._tried()
        return self._model

    def _tried(self) -> M:
        try:
            return self._loading()
        except ModelError as error:
            self._failure, self._again_at = str(error), monotonic() + RETRY_SECONDS
            raise


def _batches(texts: Sequence[Sized], size: int) -> list[list[int]]:
    """Positions, texts of like length together: little padding, and memory runs out at the first batch or never."""
    longest_first = sorted(range(len(texts)), key=lambda position: -len(texts[position]))
    return [longest_first[start : start + size] for start in range(0, len(texts), size)]
