"""`kill -9` of the gateway under load: when does it answer again, and what do the clients see?

Clients ask `/v1/answer` without a pause while the gateway's replica is killed, again and again. After each kill a new
connection asks for one answer. The time until the answer is compared with that of the first replica of this run, from
when Serve started it until its first answer. A client that waits for an answer of the killed replica loses its
connection; all others wait for the new replica.

    python -m benchmarks.gateway_kills
    python -m benchmarks.gateway_kills --clients 8 --kills 10
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from benchmarks.machine import heading
from benchmarks.replica import find_replica
from benchmarks.scratch import exit_when_terminated, scratch_folder, server_in
from rag_core.settings import load_settings

HOST, PORT = "127.0.0.1", 8127
URL = f"http://{HOST}:{PORT}/v1/answer"
QUESTION = {"question": "How often are the signing keys replaced?"}
SETTINGS = ("embedding.type=hashing",)
TIMEOUT = 120.0
"""Seconds after which a request, or the gateway, counts as lost."""
LOAD_SECONDS = 3.0
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
        settings = load_settings(None, "default", [f"store.url={store}", *SETTINGS], environment={})
        from serve.app import build_local_application
        from serve.gateway_settings import GatewaySettings
        from serve.shape.local import serve_locally

        with serve_locally(lambda: build_local_application(GatewaySettings(own=settings)), HOST, PORT):
            exit_when_terminated()
            asyncio.run(_kill_under_load(arguments.clients, arguments.kills))


def _ingest(scratch: Path, store: str) -> None:
    docs = scratch / "docs"
    docs.mkdir()
    (docs / "keys.md").write_text("# Keys\n\nSigning keys are replaced every 45 days.\n")
    command = [sys.executable, "-m", "rag_cli", "ingest", str(docs), "--store", store, "--quiet", "--runner", "inline"]
    subprocess.run([*command, *(part for setting in SETTINGS for part in ("--set", setting))], check=True)


async def _kill_under_load(clients: int, kills: int) -> None:
    await _await_answer()
    fresh = time.time() - find_replica()[1]
    print(f"the first replica answers {fresh:.1f} s after its start")
    outcomes, stop = Outcomes(), asyncio.Event()
    tasks = [asyncio.create_task(_ask_until(stop, outcomes)) for _ in range(clients)]
    seconds = []
    for _ in range(kills):
        await asyncio.sleep(LOAD_SECONDS)
        os.kill(find_replica()[0], signal.SIGKILL)
        killed = time.time()
        if not await _await_answer():
            print(f"no answer {TIMEOUT:g} s after the kill")
            break
        seconds.append(time.time() - killed)
        own = time.time() - find_replica()[1]
        print(f"killed: answers after {seconds[-1]:.1f} s ({own:.1f} s after Serve started the new replica)")
    stop.set()
    await asyncio.gather(*tasks)
    if seconds:
        print(f"{len(seconds)} of {kills} kills: {min(seconds):.1f} to {max(seconds):.1f} s")
        print(f"at most {max(seconds) / fresh:.2f} x the first replica")
    print(f"requests of {clients} clients: {dict(outcomes.kinds)}; the slowest answer took {outcomes.slowest:.1f} s")


async def _ask_until(stop: asyncio.Event, outcomes: Outcomes) -> None:
    """One client. It connects again after an error, and waits a second after a problem that is retryable."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while not stop.is_set():
            began = time.perf_counter()
            try:
                async with session.post(URL, json=QUESTION) as response:
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


async def _await_answer() -> bool:
    """True as soon as a new connection gets an answer, False after `TIMEOUT`."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session:
        with suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT):
                while True:
                    with suppress(aiohttp.ClientError, OSError):
                        async with session.post(URL, json=QUESTION) as response:
                            if response.status == 200:
                                return True
                    await asyncio.sleep(0.05)
    return False


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kills", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main()
