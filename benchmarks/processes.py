"""Resources that process trees use: peak memory, and CPU time by kind of process."""

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

MEGABYTE = 1_000_000
MEMORY_PERIOD, CPU_PERIOD = 0.5, 2.0
"""Seconds between two samples. A sample costs 7 ms of CPU, which slows a pipeline that is timed meanwhile."""


@dataclass
class Peak:
    """Megabytes. `processes` is the sum of PSS, so that shared pages count once."""

    processes: float = 0.0
    object_store: float = 0.0


@contextmanager
def watch_memory(roots: Sequence[int]) -> Iterator[Peak]:
    """Yields the peak below these root processes, complete when the block ends.

    Do not time work in this block: reading the memory of twenty processes takes CPU.
    """
    peak = Peak()

    def sample() -> None:
        peak.processes = max(peak.processes, sum(map(_pss, _live_processes(roots))) / MEGABYTE)
        peak.object_store = max(peak.object_store, _object_store() / MEGABYTE)

    with _repeat(sample, MEMORY_PERIOD):
        yield peak


@dataclass
class CpuUse:
    """Samples of (time, CPU seconds by kind of process). They miss the last moments of processes that have ended."""

    samples: list[tuple[float, Mapping[str, float]]] = field(default_factory=list)

    def since(self, seconds: float) -> dict[str, float]:
        """CPU seconds by kind of process, used later than this many seconds after the first sample."""
        moment = self.samples[0][0] + seconds
        before = next((used for at, used in reversed(self.samples) if at <= moment), {})
        return {kind: total - before.get(kind, 0.0) for kind, total in self.samples[-1][1].items()}


@contextmanager
def watch_cpu(roots: Sequence[int]) -> Iterator[CpuUse]:
    """Yields the CPU seconds used below these root processes, complete when the block ends."""
    before = {process.pid: _cpu(process) for process in _live_processes(roots)}
    latest: dict[int, tuple[str, float]] = {}
    use = CpuUse([(time.monotonic(), {})])

    def sample() -> None:
        for process in _live_processes(roots):
            if seconds := _cpu(process):
                latest[process.pid] = (_kind(process, roots[0]), seconds)
        used: dict[str, float] = defaultdict(float)
        for id, (kind, seconds) in latest.items():
            used[kind] += seconds - before.get(id, 0.0)
        use.samples.append((time.monotonic(), used))

    with _repeat(sample, CPU_PERIOD):
        yield use


@contextmanager
def _repeat(sample: Callable[[], None], period: float) -> Iterator[None]:
    ended = threading.Event()

    def loop() -> None:
        while not ended.wait(period):
            sample()

    with ThreadPoolExecutor(1) as pool:
        sampling = pool.submit(loop)
        try:
            yield
        finally:
            ended.set()
            sampling.result()  # raises its error, because a peak without samples would be wrong
            sample()


def _object_store() -> float:
    if "ray" not in sys.modules:  # importing it would add memory
        return 0.0
    import ray

    if not ray.is_initialized():
        return 0.0
    total, free = ray.cluster_resources(), ray.available_resources()  # type: ignore[no-untyped-call]
    return float(total.get("object_store_memory", 0.0) - free.get("object_store_memory", 0.0))


def _live_processes(roots: Sequence[int]) -> list[psutil.Process]:
    return [process for root in map(psutil.Process, roots) for process in (root, *root.children(recursive=True))]


def _pss(process: psutil.Process) -> float:
    try:
        return float(process.memory_full_info().pss)
    except psutil.Error:  # it has ended
        return 0.0


def _cpu(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:2]))
    except psutil.Error:
        return 0.0


def _kind(process: psutil.Process, main: int) -> str:
    try:
        name, words = process.name(), " ".join(process.cmdline())
    except psutil.Error:
        return "ended"
    if process.pid == main:
        return "main"
    if "postgres" in name:
        return "Postgres"
    if "sandbox" in words:
        return "parsers"
    if words.startswith("ray::MapWorker"):
        return "embedding actors"
    return "task workers" if words.startswith("ray::") else "Ray's own"
