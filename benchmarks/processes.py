"""What trees of processes use: memory at the most, and CPU by kind of process."""

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
"""Seconds from look to look. One costs 7 ms of CPU, which a pipeline that is timed meanwhile lacks."""


@dataclass
class Peak:
    """Megabytes. `processes` share what they have in common (PSS)."""

    processes: float = 0.0
    object_store: float = 0.0


@contextmanager
def memory_watched(roots: Sequence[int]) -> Iterator[Peak]:
    """Reading the memory of twenty processes takes CPU: nothing that is timed belongs in here."""
    peak = Peak()

    def look() -> None:
        peak.processes = max(peak.processes, sum(map(_pss, _alive(roots))) / MEGABYTE)
        peak.object_store = max(peak.object_store, _object_store() / MEGABYTE)

    with _repeated(look, MEMORY_PERIOD):
        yield peak


@dataclass
class CpuUse:
    """CPU seconds by kind of process, as seen from time to time; of who has ended, all but the last moment."""

    looks: list[tuple[float, Mapping[str, float]]] = field(default_factory=list)

    def since(self, seconds: float) -> dict[str, float]:
        """What was used after so many seconds."""
        moment = self.looks[0][0] + seconds
        before = next((used for at, used in reversed(self.looks) if at <= moment), {})
        return {kind: total - before.get(kind, 0.0) for kind, total in self.looks[-1][1].items()}


@contextmanager
def cpu_watched(roots: Sequence[int]) -> Iterator[CpuUse]:
    before = {process.pid: _cpu(process) for process in _alive(roots)}
    latest: dict[int, tuple[str, float]] = {}
    use = CpuUse([(time.monotonic(), {})])

    def look() -> None:
        for process in _alive(roots):
            if seconds := _cpu(process):
                latest[process.pid] = (_kind(process, roots[0]), seconds)
        used: dict[str, float] = defaultdict(float)
        for id, (kind, seconds) in latest.items():
            used[kind] += seconds - before.get(id, 0.0)
        use.looks.append((time.monotonic(), used))

    with _repeated(look, CPU_PERIOD):
        yield use


@contextmanager
def _repeated(look: Callable[[], None], period: float) -> Iterator[None]:
    ended = threading.Event()

    def loop() -> None:
        while not ended.wait(period):
            look()

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(loop)
        try:
            yield
        finally:
            ended.set()
            looking.result()  # who has stopped looking has seen no peak
            look()


def _object_store() -> float:
    if "ray" not in sys.modules:  # its import would count
        return 0.0
    import ray

    if not ray.is_initialized():
        return 0.0
    there, free = ray.cluster_resources(), ray.available_resources()  # type: ignore[no-untyped-call]
    return float(there.get("object_store_memory", 0.0) - free.get("object_store_memory", 0.0))


def _alive(roots: Sequence[int]) -> list[psutil.Process]:
    processes = map(psutil.Process, roots)
    return [each for process in processes for each in (process, *process.children(recursive=True))]


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
