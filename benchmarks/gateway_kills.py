"""`kill -9` of the gateway under load: when does it answer again, and what do the clients see?

Clients ask `/v1/answer` without a pause while the gateway's replica is killed, again and again. After each kill a new
connection asks until it gets an answer. A fresh replica is each new one, from the start of its process until its first
answer; the rest of the time Serve needs to notice the kill and to start the process. A client that waits for an answer of
the killed replica loses its connection; all others wait for the new replica.

    python -m benchmarks.gateway_kills
    python -m benchmarks.gateway_kills --clients 8 --kills 10
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psutil

from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in

HOST, PORT = "127.0.0.1", 8127
QUESTION = {"question": "How often are the signing keys replaced?"}
SETTINGS = ("--set", "embedding.type=hashing")
TIMEOUT = 120.0
"""Seconds after which a request, or the gateway, counts as lost."""
QUIET_SECONDS = 3.0
"""Seconds of load before each kill."""


@dataclass(slots=True)
class Outcomes:
    """How requests ended, by kind, and the seconds of the slowest answer."""

    kinds: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0


def main() -> None:
    arguments = _arguments()
    print(heading())
    with scratch_folder() as scratch, server_in(scratch) as store:
        _ingest(scratch, store)
        with run_gateway(store) as gateway:
            asyncio.run(_kill_under_load(gateway, arguments.clients, arguments.kills))


def _ingest(scratch: Path, store: str) -> None:
    docs = scratch / "docs"
    docs.mkdir()
    (docs / "keys.md").write_text("# Keys\n\nSigning keys are replaced every 45 days.\n")
    command = [sys.executable, "-m", "rag_cli", "ingest", str(docs), "--store", store, "--quiet", *SETTINGS]
    subprocess.run([*command, "--runner", "inline"], check=True)


@contextmanager
def run_gateway(store: str, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """Runs `rag serve`, and yields its process when it is ready."""
    command = [sys.executable, "-m", "rag_cli", "serve", "--port", str(PORT), "--store", store, *SETTINGS, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            print(process.stdout.readline() if process.stdout else "", end="")
            yield process
        finally:
            process.terminate()


async def _kill_under_load(gateway: "subprocess.Popen[str]", clients: int, kills: int) -> None:
    outcomes, stop = Outcomes(), asyncio.Event()
    tasks = [asyncio.create_task(_ask_until(stop, outcomes)) for _ in range(clients)]
    ratios = []
    for _ in range(kills):
        await asyncio.sleep(QUIET_SECONDS)
        replica = find_replica(gateway.pid)
        replica.kill()
        killed = time.time()
        replica.wait()
        if not await _await_answer(gateway):
            print(f"no answer {TIMEOUT:g} s after the kill; exit code of rag serve: {gateway.poll()}")
            break
        answered = time.time()
        fresh = answered - find_replica(gateway.pid).create_time()
        ratios.append((answered - killed) / fresh)
        print(f"killed: answers after {answered - killed:.1f} s, {ratios[-1]:.2f} x a fresh replica ({fresh:.1f} s)")
    stop.set()
    await asyncio.gather(*tasks)
    if ratios:
        print(f"{len(ratios)} of {kills} kills recovered, at most {max(ratios):.2f} x a fresh replica")
    print(f"requests of {clients} clients: {dict(outcomes.kinds)}; the slowest answer took {outcomes.slowest:.1f} s")


async def _ask_until(stop: asyncio.Event, outcomes: Outcomes) -> None:
    """One client. It connects again after an error, and waits a second after a problem that is retryable."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while not stop.is_set():
            began = time.perf_counter()
            try:
                async with session.post(f"http://{HOST}:{PORT}/v1/answer", json=QUESTION) as response:
                    body = await response.json(content_type=None)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                outcomes.kinds[type(error).__name__] += 1
                await asyncio.sleep(0.2)
                continue
            if response.status == 200:
                outcomes.kinds["answered"] += 1
                outcomes.slowest = max(outcomes.slowest, time.perf_counter() - began)
            else:
                retryable = ", retryable" if isinstance(body, dict) and body.get("retryable") else ""
                outcomes.kinds[f"{response.status}{retryable}"] += 1
                await asyncio.sleep(1.0)


async def _await_answer(gateway: "subprocess.Popen[str]") -> bool:
    """True as soon as a new connection gets an answer; False if `rag serve` ends, or after `TIMEOUT`."""
    deadline = time.perf_counter() + TIMEOUT
    while time.perf_counter() < deadline and gateway.poll() is None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with session.post(f"http://{HOST}:{PORT}/v1/answer", json=QUESTION) as response:
                    if response.status == 200:
                        return True
        await asyncio.sleep(0.05)
    return False


def find_replica(pid: int) -> psutil.Process:
    """The process of the gateway's replica, below the process of `rag serve`."""
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            if "ServeReplica:rag:Gateway" in " ".join(process.cmdline()):
                return process
    raise SystemExit("the gateway has no replica")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kills", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main()
