"""The same work in as many processes as there are CPUs."""

import os
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from typing import Any, Literal

CPUS = len(os.sched_getaffinity(0))
PATIENCE = 600.0
"""Seconds after which a process is believed to have died."""


def side_by_side(
    prepared: Callable[..., Callable[[], object]],
    shares: Sequence[Sequence[Any]],
    start_method: Literal["spawn", "fork"] = "spawn",
) -> float:
    """Seconds from when every process has `prepared` its share, until all have done what that returned."""
    context = get_context(start_method)
    together = context.Barrier(len(shares) + 1, timeout=PATIENCE)
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


def _do(prepared: Callable[..., Callable[[], object]], share: Sequence[Any], together: Any) -> None:
    work = prepared(*share)
    together.wait()
    work()
    together.wait()
