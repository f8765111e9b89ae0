"""A model that all requests of a process share to score pairs of texts."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from math import ceil, isfinite
from threading import Event, Lock
from time import monotonic
from typing import Generic, TypeAlias, TypeVar

from anyio import to_thread

from rag_core.errors import ModelError, first_line
from rag_core.protocols import Pair

M = TypeVar("M")
BatchScorer: TypeAlias = Callable[[Sequence[Pair]], list[float]]

RETRY_SECONDS = 60.0
"""Seconds before a model that failed to load is loaded again: an unreachable hub takes seconds to fail."""


class SharedModel(Generic[M]):
    """A model that `load` or the first request loads. `role` is its name in errors.

    It serves one request at a time: a tokenizer fails with "Already borrowed" if two threads set its truncation.

    `prepare` takes the model and all pairs of a request. It returns the function that scores a batch of them, of at
    most `batch_size`.
    """

    def __init__(
        self,
        role: str,
        load_model: Callable[[], M],
        prepare: Callable[[M, Sequence[Pair]], BatchScorer],
        batch_size: int,
    ) -> None:
        self._role, self._load_model, self._prepare, self._batch_size = role, load_model, prepare, batch_size
        self._lock = Lock()
        self._models: Sequence[M] = ()
        self._failure, self._retry_at = "", 0.0

    def load(self, threads: int = 1) -> None:
        """Loads the model, which takes seconds, so that the first request need not wait for it.

        With several `threads`, each scores a batch: for a process that does nothing else. They have no effect if the
        model is already loaded. Raises ModelError if the model or its device is unavailable.
        """
        with self._lock:
            self._get_models(threads)

    async def score(self, pairs: Sequence[Pair]) -> list[float]:
        """Returns the scores in the order given. They are computed in a thread.

        A cancelled caller returns at once; the work ends with the current batch.
        """
        if not pairs:
            return []
        abandoned = Event()
        try:
            return await to_thread.run_sync(partial(self._score_pairs, pairs, abandoned), abandon_on_cancel=True)
        finally:
            abandoned.set()

    def _score_pairs(self, pairs: Sequence[Pair], abandoned: Event) -> list[float]:
        scores = [0.0] * len(pairs)
        with self._lock:
            models = self._get_models()
            batches = _split_by_length(pairs, self._batch_size, len(models))
            remaining = iter(batches)  # each model takes the next batch when it is free

            def score_batches(model: M) -> None:
                score_batch = self._prepare(model, pairs)
                for batch in remaining:
                    if abandoned.is_set():
                        break
                    batch_scores = self._score_batch(score_batch, [pairs[position] for position in batch])
                    for position, score in zip(batch, batch_scores, strict=True):
                        scores[position] = score

            _run_in_threads([partial(score_batches, model) for model in models[: len(batches)]])
        return scores

    def _score_batch(self, score_batch: BatchScorer, pairs: Sequence[Pair]) -> list[float]:
        """Scores a batch. Raises ModelError if the model fails or a score is not finite."""
        try:
            scores = score_batch(pairs)
        except RuntimeError as error:  # torch raises it for lack of memory and for failures of the device
            raise ModelError(
                f"the {self._role} could not compute: try a smaller batch_size, or device cpu ({first_line(error)})"
            ) from error
        if not all(map(isfinite, scores)):
            raise ModelError(f"the {self._role} returned a score that is not a finite number: try precision fp32")
        return scores

    def _get_models(self, threads: int = 1) -> Sequence[M]:
        """The model and its copies, one per thread. Loads them on the first call."""
        if self._models:
            return self._models
        if self._failure and monotonic() < self._retry_at:
            raise ModelError(self._failure)
        from rag_core.models.thread_copies import copy_for_threads  # imports torch, which building does not need

        try:
            self._models = copy_for_threads(self._load_model(), threads)
        except ModelError as error:
            self._failure, self._retry_at = str(error), monotonic() + RETRY_SECONDS
            raise
        return self._models


def _run_in_threads(tasks: Sequence[Callable[[], None]]) -> None:
    """Runs each task in a separate thread until all have ended. Then raises the first error."""
    if len(tasks) == 1:
        tasks[0]()
        return
    with ThreadPoolExecutor(len(tasks)) as pool:
        futures = [pool.submit(task) for task in tasks]
    for future in futures:
        future.result()


def _split_by_length(pairs: Sequence[Pair], batch_size: int, threads: int) -> list[list[int]]:
    """The positions of the pairs in batches, longest pairs first.

    Pairs of similar length are together, which needs little padding. If memory runs out, it does so at the first batch.
    The batches are about equally large, and their number keeps all threads busy.
    """
    longest_first = sorted(range(len(pairs)), key=lambda position: -sum(map(len, pairs[position])))
    count = min(len(pairs), threads * ceil(len(pairs) / batch_size / threads))
    bounds = [len(pairs) * number // count for number in range(count + 1)]
    return [longest_first[start:end] for start, end in pairwise(bounds)]
