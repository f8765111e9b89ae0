"""A measurement of the same work in one process per CPU."""

import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from typing import Any, Literal, TypeAlias, TypeVar

from jobs.machine import CPUS

T = TypeVar("T")
Preparation: TypeAlias = Callable[[Sequence[T]], Callable[[], object]]
"""Prepares a share of the items, and returns the function that does the work."""

BARRIER_TIMEOUT = 600.0
"""Seconds after which a process that has not reached the barrier counts as dead."""


def time_in_processes(
    prepare: Preparation[T], items: Sequence[T], start_method: Literal["spawn", "fork"] = "spawn"
) -> float:
    """Seconds from when every process has prepared its share of the items until all have finished.

    The items are dealt to the processes in turn.
    """
    context = get_context(start_method)
    barrier = context.Barrier(CPUS + 1, timeout=BARRIER_TIMEOUT)
    shares = [items[first::CPUS] for first in range(CPUS)]
    processes = [context.Process(target=_work, args=(prepare, share, barrier)) for share in shares]
    for process in processes:
        process.start()
    barrier.wait()
    began = time.perf_counter()
    barrier.wait()
    seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    return seconds


def _work(prepare: Preparation[T], share: Sequence[T], barrier: Any) -> None:
    work = prepare(share)
    barrier.wait()
    work()
    barrier.wait()
