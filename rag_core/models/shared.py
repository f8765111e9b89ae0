"""A model that all requests of a process share, and how it scores their pairs of texts."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from math import ceil, isfinite
from threading import Event, Lock
from time import monotonic
from typing import Generic, TypeAlias, TypeVar

from anyio import to_thread

from rag_core.errors import ModelError
from rag_core.protocols import Pair

M = TypeVar("M")
Scoring: TypeAlias = Callable[[Sequence[Pair]], list[float]]

RETRY_SECONDS = 60.0
"""So long a model that could not be loaded is not looked for again: a hub that is away takes seconds to say so."""


class SharedModel(Generic[M]):
    """Loaded once, by `load` or the first request. Used by one request at a time: a tokenizer whose truncation two
    threads set fails with "Already borrowed". `role` is what its errors call it.

    `prepared` makes of the model, and of all pairs of a request, what scores a batch of them, `batch_size` at most.
    """

    def __init__(
        self,
        role: str,
        loading: Callable[[], M],
        prepared: Callable[[M, Sequence[Pair]], Scoring],
        batch_size: int,
    ) -> None:
        self._role, self._loading, self._prepared, self._batch_size = role, loading, prepared, batch_size
        self._lock = Lock()
        self._models: Sequence[M] = ()
        self._failure, self._again_at = "", 0.0

    def load(self, threads: int = 1) -> None:
        """Seconds: what the first request would wait for otherwise. ModelError if the model, or its device, is not
        there.

        If this loads it, so many `threads` score a batch each: for a process that does nothing else.
        """
        with self._lock:
            self._loaded(threads)

    async def score(self, pairs: Sequence[Pair]) -> list[float]:
        """In the order given, in a thread. A caller who is cancelled goes at once, and the work ends with the batch at
        hand."""
        if not pairs:
            return []
        abandoned = Event()
        try:
            return await to_thread.run_sync(partial(self._scores, pairs, abandoned), abandon_on_cancel=True)
        finally:
            abandoned.set()

    def _scores(self, pairs: Sequence[Pair], abandoned: Event) -> list[float]:
        scores = [0.0] * len(pairs)
        with self._lock:
            models = self._loaded()
            batches = _batches(pairs, self._batch_size, len(models))
            waiting = iter(batches)  # each model takes the next one when it is free

            def take(model: M) -> None:
                scoring = self._prepared(model, pairs)
                for batch in waiting:
                    if abandoned.is_set():
                        break
                    for position, score in zip(batch, self._computed(scoring, [pairs[i] for i in batch]), strict=True):
                        scores[position] = score

            _side_by_side([partial(take, model) for model in models[: len(batches)]])
        return scores

    def _computed(self, scoring: Scoring, pairs: Sequence[Pair]) -> list[float]:
        try:
            scores = scoring(pairs)
        except RuntimeError as error:  # of torch: memory, device
            reason = str(error).partition("\n")[0]
            raise ModelError(
                f"the {self._role} could not compute: try a smaller batch_size, or device cpu ({reason})"
            ) from error
        if not all(map(isfinite, scores)):
            raise ModelError(f"the {self._role} gave a score that is no number: try precision fp32")
        return scores

    def _loaded(self, threads: int = 1) -> Sequence[M]:
        if not self._models:
            if self._failure and monotonic() < self._again_at:
                raise ModelError(self._failure)
            self._models = self._tried(threads)
        return self._models

    def _tried(self, threads: int) -> Sequence[M]:
        from rag_core.models.thread_copies import copies  # imports torch: not for who only builds

        try:
            return copies(self._loading(), threads)
        except ModelError as error:
            self._failure, self._again_at = str(error), monotonic() + RETRY_SECONDS
            raise


def _side_by_side(work: Sequence[Callable[[], None]]) -> None:
    """In a thread each, all to their end; then the first error is raised."""
    if len(work) == 1:
        work[0]()
        return
    with ThreadPoolExecutor(len(work)) as pool:
        running = [pool.submit(each) for each in work]
    for each in running:
        each.result()


def _batches(pairs: Sequence[Pair], most: int, threads: int) -> list[list[int]]:
    """Positions, pairs of like length together: little padding, and memory runs out at the first batch or never. All
    are about as large, and as many as keep the threads at work."""
    longest_first = sorted(range(len(pairs)), key=lambda position: -sum(map(len, pairs[position])))
    count = min(len(pairs), threads * ceil(len(pairs) / most / threads))
    bounds = [len(pairs) * number // count for number in range(count + 1)]
    return [longest_first[start:end] for start, end in pairwise(bounds)]
