"""The same work in as many processes as there are CPUs."""

import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from typing import Any, Literal, TypeAlias, TypeVar

from benchmarks.machine import CPUS

T = TypeVar("T")
Prepared: TypeAlias = Callable[[Sequence[T]], Callable[[], object]]
"""Makes ready for a share of the work, and returns what does it."""

PATIENCE = 600.0
"""Seconds after which a process is believed to have died."""


def side_by_side(prepared: Prepared[T], items: Sequence[T], start_method: Literal["spawn", "fork"] = "spawn") -> float:
    """Seconds from when every process has `prepared` its share of the items, dealt out in turn, until all are done."""
    context = get_context(start_method)
    together = context.Barrier(CPUS + 1, timeout=PATIENCE)
    shares = [items[first::CPUS] for first in range(CPUS)]
    processes = [context.Process(target=_do, args=(prepared, share, together)) for share in shares]
    for process in processes:
        process.start()
    together.wait()
    began = time.perf_counter()
    together.wait()
    seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    return seconds


def _do(prepared: Prepared[T], share: Sequence[T], together: Any) -> None:
    work = prepared(share)
    together.wait()
    work()
    together.wait()
