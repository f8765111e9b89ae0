"""One gateway with several profiles: memory and time of the first use of each, and reloads under load.

The gateway starts with the default profile. A first request names each other profile, then nine more: the time of the
first is compared with the median of the nine, and the gateway's memory before and after it with that of a gateway that
serves the default profile alone. Then clients search with all profiles in turn, without a pause, first while nothing
changes, then while the settings file is rewritten again and again. The two loads follow each other in this run.

    python -m benchmarks.profiles
    python -m benchmarks.profiles --clients 4 --seconds 30 --reloads 10
"""

import argparse
import asyncio
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import httpx2
import psutil

from benchmarks.machine import heading
from benchmarks.replica import find_replica
from benchmarks.scratch import exit_when_terminated, scratch_folder, server_in

HOST, PORT = "127.0.0.1", 8129
URL = f"http://{HOST}:{PORT}"
OTHERS = ("pmc-cpu", "dailymed-cpu", "clinicaltrials-cpu", "mine")
PROFILES = ("default", *OTHERS)
SETTINGS = "answering: {{depth: {depth}, budget: none}}\nprofiles: {{mine: {{retrieval: {{type: bm25}}}}}}\n"
QUESTIONS = ("How often are the signing keys replaced?", "When does the sea lock open?", "Who keeps a copy?")
TEXTS = {
    "keys.md": "# Keys\n\nSigning keys are replaced every 45 days. The harbour master keeps a copy in the red box.\n",
    "locks.md": "# Locks\n\nThe sea lock opens two hours before high water. Boats wait at the pontoon.\n",
}
REPEATS = 9
MEGABYTE = 1 << 20


@dataclass(slots=True)
class Load:
    """The requests of one load test. `seconds` has each that succeeded; `versions` the pipelines that answered."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)

    def quantile(self, share: float) -> float:
        """In milliseconds."""
        return 1000 * sorted(self.seconds)[int(share * (len(self.seconds) - 1))]


def main() -> None:
    arguments = _arguments()
    print(heading())
    with scratch_folder() as scratch, server_in(scratch) as store:
        file = scratch / "rag.yaml"
        file.write_text(SETTINGS.format(depth=40))
        _ingest(scratch, store, file)
        from serve.app import build_local_application
        from serve.gateway_settings import SettingsSource, load_gateway_settings
        from serve.shape.local import serve_locally

        source = SettingsSource(file=str(file), set=(f"store.url={store}",), environment={})
        settings = load_gateway_settings(source)
        with serve_locally(lambda: build_local_application(settings, source), HOST, PORT):
            exit_when_terminated()
            _measure_first_uses()
            asyncio.run(_reload_under_load(file, arguments))


def _ingest(scratch: Path, store: str, file: Path) -> None:
    """Ingests the texts into one collection per profile."""
    docs = scratch / "docs"
    docs.mkdir()
    for name, text in TEXTS.items():
        (docs / name).write_text(text)
    for profile in PROFILES:
        options = ["--collection", profile, "--profile", profile, "--config", str(file), "--store", store]
        command = [sys.executable, "-m", "rag_cli", "ingest", str(docs), *options, "--quiet", "--runner", "inline"]
        subprocess.run(command, check=True)


def _measure_first_uses() -> None:
    pid, _ = find_replica()
    with httpx2.Client(base_url=URL, timeout=300) as client:
        for question in QUESTIONS:
            _search(client, "default", question)
        alone = _resident(pid)
        print(f"the default profile alone: {alone:.0f} MB")
        print(f"{'profile':20}{'first use, s':>14}{'median of 9, ms':>17}{'memory, MB':>12}{'of default':>12}")
        for profile in OTHERS:
            before = _resident(pid)
            first = _search(client, profile, QUESTIONS[0])
            used = _resident(pid) - before
            later = [_search(client, profile, question) for question in QUESTIONS * (REPEATS // len(QUESTIONS))]
            row = f"{profile:20}{first:14.2f}{1000 * statistics.median(later):17.1f}{used:12.0f}{used / alone:12.2f}"
            print(row)


def _search(client: httpx2.Client, profile: str, question: str) -> float:
    """The seconds of a search. Raises an error if it fails."""
    started = time.perf_counter()
    client.post("/v1/retrieve", json=_body(profile, question)).raise_for_status()
    return time.perf_counter() - started


def _body(profile: str, question: str) -> Mapping[str, str]:
    return {"query": question, "profile": profile, "collection": profile}


def _resident(pid: int) -> float:
    """In megabytes."""
    return float(psutil.Process(pid).memory_info().rss / MEGABYTE)


async def _reload_under_load(file: Path, arguments: argparse.Namespace) -> None:
    quiet = await _run_load(arguments.clients, arguments.seconds)
    rewriting = asyncio.create_task(_rewrite(file, arguments.reloads, arguments.seconds))
    reloading = await _run_load(arguments.clients, arguments.seconds)
    await rewriting
    print(f"{'load':20}{'requests':>10}{'failed':>8}{'p50, ms':>10}{'p95, ms':>10}{'pipelines':>11}")
    for name, load in (("nothing changes", quiet), (f"{arguments.reloads} reloads", reloading)):
        counts = f"{len(load.seconds):10}{len(load.failures):8}"
        print(f"{name:20}{counts}{load.quantile(0.5):10.1f}{load.quantile(0.95):10.1f}{len(load.versions):11}")
    print(f"p95 with reloads is {reloading.quantile(0.95) / quiet.quantile(0.95):.2f} x that without")
    for failure in [*quiet.failures, *reloading.failures][:5]:
        print(f"failed: {failure}")


async def _rewrite(file: Path, reloads: int, seconds: float) -> None:
    for depth in range(41, 41 + reloads):
        await asyncio.sleep(seconds / (reloads + 1))
        file.write_text(SETTINGS.format(depth=depth))


async def _run_load(clients: int, seconds: float) -> Load:
    load, deadline = Load(), time.monotonic() + seconds
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        await asyncio.gather(*(_ask_until(deadline, session, load, PROFILES[n % 5 :]) for n in range(clients)))
    return load


async def _ask_until(deadline: float, session: aiohttp.ClientSession, load: Load, first: Sequence[str]) -> None:
    for profile, question in zip(
        itertools.chain(first, itertools.cycle(PROFILES)), itertools.cycle(QUESTIONS), strict=False
    ):
        if time.monotonic() > deadline:
            return
        started = time.perf_counter()
        try:
            async with session.post(f"{URL}/v1/retrieve", json=_body(profile, question)) as response:
                body = await response.json(content_type=None)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            load.failures.append(repr(error))
            continue
        if response.status == 200:
            load.seconds.append(time.perf_counter() - started)
            load.versions.add(body["pipeline_version"])
        else:
            load.failures.append(f"{response.status} {body}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--reloads", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main()
