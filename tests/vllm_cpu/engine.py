"""The metrics, logs and processes of vLLM, as seen from outside."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import psutil

MODEL = "llama"
TOKENS = 400
"""Of each answer that it gives through the gateway: it never ends one by itself."""

PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine whose Ray serves metrics on this port, and writes logs to this folder."""

    port: int
    folder: Path

    @property
    def running(self) -> float:
        """The number of running requests."""
        return self._metric("ray_vllm_num_requests_running")

    @property
    def written(self) -> float:
        """The number of tokens generated since the start."""
        return self._metric("ray_vllm_generation_tokens_total")

    async def count_when_idle(self) -> float:
        """Returns `written` when two reports of the metrics agree: an idle engine's last report can be late."""
        count, previous = self.written, -1.0
        while count != previous:
            await asyncio.sleep(1.5)
            count, previous = self.written, count
        return count

    def _metric(self, name: str) -> float:
        with urlopen(f"http://127.0.0.1:{self.port}/metrics") as response:
            lines = response.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{"))

    def find_logs(self, text: str) -> list[Path]:
        logs = (self.folder / "session_latest" / "logs").rglob("*.*")
        return [log for log in logs if log.is_file() and text.encode() in log.read_bytes()]


async def eventually(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE
    while not (met := condition()) and time.monotonic() < until:
        await asyncio.sleep(0.1)
    return met


def engine_cores() -> list[psutil.Process]:
    """The processes of vLLM's engines below this one."""
    return [process for process in psutil.Process().children(recursive=True) if "EngineCore" in _title(process)]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # also of one that is a zombie
        return ""
