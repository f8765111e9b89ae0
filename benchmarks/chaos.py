"""Each process of `rag serve` is killed or frozen under load: when are answers whole again, and what is lost?

Clients ask `/v1/answer` without a pause, and one more client ingests documents and records what was accepted.
Meanwhile the processes are killed, or frozen for some seconds, in turn: the replicas of Serve, Postgres, and the
endpoint of the language model. Postgres and the endpoint are started again at once, as a service manager would.
Recovery is the time from the fault (or the end of the freeze) until a new connection gets an answer that is not
degraded, or, for the runner, until a new document is ingested. It is compared with the start of the gateway's first
replica in the same run. At the end each accepted document must be in the store.

    python -m benchmarks.chaos                      one process for all models
    python -m benchmarks.chaos --shape cluster      embedder, reranker and judge in separate deployments
    python -m benchmarks.chaos --fault freeze --times 10 --clients 8
    python -m benchmarks.chaos --minutes 30         no faults: the growth of memory, descriptors and threads
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import psutil
import yaml

from benchmarks.machine import heading
from benchmarks.random_models import write_random_model
from benchmarks.scratch import POSTGRES, exit_when_terminated, scratch_folder, server_in
from rag_core.storage import embedded

PORT, ENDPOINT_PORT = 8129, 8130
URL, ENDPOINT = f"http://127.0.0.1:{PORT}", f"http://127.0.0.1:{ENDPOINT_PORT}/v1"
QUESTION = {"question": "How often are the signing keys replaced?"}
TIMEOUT = 120.0
"""Seconds after which a request, or a recovery, counts as lost."""
PAUSE = 3.0
"""Seconds of load before each fault."""
WRITE_SECONDS = 5.0
"""Seconds between two documents. Those that wait for a new runner delay its recovery."""
SAMPLE_SECONDS = 15.0
RAG = [sys.executable, "-m", "rag_cli"]
REPLICA = "ServeReplica:rag:"
MODELS = ("Embedder", "Reranker", "Judge")


@dataclass(slots=True)
class Load:
    """What the clients saw: the kinds of outcomes by the fault at that time, and the accepted documents by job."""

    fault: str = "no fault"
    kinds: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    accepted: dict[str, str] = field(default_factory=dict)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self, kind: str) -> None:
        self.kinds[self.fault][kind] += 1


@dataclass(frozen=True, slots=True)
class Victim:
    """A process to kill or freeze, found anew each time. `restart` starts it again if nothing else does."""

    name: str
    find: Callable[[], psutil.Process]
    restart: Callable[[], object] = lambda: None
    needs_ingest: bool = False


def main() -> None:
    arguments = _arguments()
    print(heading())
    with scratch_folder() as scratch, server_in(scratch) as store, _endpoint() as endpoint:
        _ingest(scratch, store, arguments.shape)
        with _gateway(scratch, store, arguments.shape) as gateway:
            exit_when_terminated()
            victims = list(_victims(scratch, gateway, endpoint, arguments.shape))
            asyncio.run(_run(arguments, victims, gateway))


async def _run(arguments: argparse.Namespace, victims: Sequence[Victim], gateway: psutil.Process) -> None:
    load = Load()
    first = await _seconds_until(_answers_whole)
    fresh = time.time() - _find_replica(gateway, "Gateway").create_time()
    print(f"the first replica answers {fresh:.1f} s after its start" if first is not None else "no first answer")
    async with _clients(load, arguments.clients):
        if arguments.minutes:
            await _soak(gateway, arguments.minutes)
        else:
            for victim in (victim for victim in victims if not arguments.victims or victim.name in arguments.victims):
                await _attack(victim, arguments, load, fresh)
    for fault, kinds in load.kinds.items():
        print(f"{fault:24} {dict(kinds)}")
    lost = await _find_lost(load.accepted)
    print(f"{len(load.accepted)} documents accepted, {len(lost)} not ingested {lost or ''}")


@asynccontextmanager
async def _clients(load: Load, clients: int) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(_ask(load)) for _ in range(clients)]
    tasks.append(asyncio.create_task(_write(load)))
    try:
        yield
    finally:
        load.stop.set()
        await asyncio.gather(*tasks)


async def _attack(victim: Victim, arguments: argparse.Namespace, load: Load, fresh: float) -> None:
    is_back = _ingests if victim.needs_ingest else _answers_whole
    seconds: list[float] = []
    for _ in range(arguments.times):
        await asyncio.sleep(PAUSE)
        load.fault = f"{arguments.fault} {victim.name}"
        process = victim.find()
        if arguments.fault == "freeze":
            process.suspend()
            await asyncio.sleep(arguments.freeze_seconds)
            with suppress(psutil.NoSuchProcess):
                process.resume()
        else:
            process.kill()
            await asyncio.to_thread(victim.restart)
        recovery = await _seconds_until(is_back)
        load.fault = "no fault"
        if recovery is None:
            print(f"{victim.name}: not back after {TIMEOUT:g} s", flush=True)
            return
        seconds.append(recovery)
    longest = max(seconds)
    print(
        f"{victim.name:12} {len(seconds)} of {arguments.times} back in {min(seconds):.1f} to {longest:.1f} s,"
        f" at most {longest / fresh:.2f} x the first start",
        flush=True,
    )


async def _ask(load: Load) -> None:
    async with _session() as session:
        while not load.stop.is_set():
            try:
                async with session.post(f"{URL}/v1/answer", json=QUESTION) as response:
                    body = await response.json(content_type=None)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                load.count(type(error).__name__)
                await asyncio.sleep(0.2)
                continue
            load.count(_describe(response.status, body))
            if response.status != 200:
                await asyncio.sleep(1.0)


def _describe(status: int, body: Any) -> str:
    if status == 200:
        return "degraded answer" if body["degraded"] else "answer"
    return f"{status}, retryable" if isinstance(body, dict) and body.get("retryable") else f"{status}"


async def _write(load: Load) -> None:
    """Sends documents and records the id of each job that was accepted."""
    async with _session() as session:
        number = 0
        while not load.stop.is_set():
            number += 1
            with suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
                async with session.post(f"{URL}/v1/ingest", json=_document(f"written-{number}")) as response:
                    if response.status == 202:
                        load.accepted[(await response.json())["job_id"]] = f"written-{number}"
            await asyncio.sleep(WRITE_SECONDS)


async def _find_lost(accepted: dict[str, str]) -> list[str]:
    """The documents whose jobs did not complete within `TIMEOUT` after the load."""
    lost: list[str] = []
    deadline = time.monotonic() + TIMEOUT
    async with _session() as session:
        for job, document in accepted.items():
            while (status := await _job_status(session, job)) in {"queued", "running", "pending"}:
                if time.monotonic() > deadline:
                    break
                await asyncio.sleep(0.5)
            if status != "completed":
                lost.append(f"{document}: {status}")
    return lost


async def _job_status(session: aiohttp.ClientSession, job: str) -> str:
    async with session.get(f"{URL}/v1/jobs/{job}") as response:
        return str((await response.json())["status"])


async def _seconds_until(is_back: "Callable[[aiohttp.ClientSession], Any]") -> float | None:
    """Seconds until a new connection gets what it asks for, None after `TIMEOUT`."""
    began = time.monotonic()
    while time.monotonic() - began < TIMEOUT:
        with suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
            async with _session() as session:
                if await is_back(session):
                    return time.monotonic() - began
        await asyncio.sleep(0.1)
    return None


async def _answers_whole(session: aiohttp.ClientSession) -> bool:
    async with session.post(f"{URL}/v1/answer", json=QUESTION) as response:
        return response.status == 200 and not (await response.json())["degraded"]


async def _ingests(session: aiohttp.ClientSession) -> bool:
    headers = {"Prefer": "wait=60"}
    async with session.post(f"{URL}/v1/ingest", json=_document("probe"), headers=headers) as response:
        return response.status == 200 and (await response.json())["status"] == "completed"


def _document(name: str) -> dict[str, object]:
    text = f"Document {name} of {time.time_ns()} says nothing about keys."
    return {"collection": "written", "documents": [{"id": name, "text": text}]}


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT))


async def _soak(gateway: psutil.Process, minutes: float) -> None:
    """Prints what the processes of the gateway use, and the slopes after the first quarter of the time."""
    samples: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < 60 * minutes:
        for name, process in _serving(gateway):
            with suppress(psutil.Error):
                usage = (process.memory_info().rss / (1 << 20), process.num_fds(), process.num_threads())
                samples[f"{name} {process.pid}"].append((elapsed / 3600, *usage))
        await asyncio.sleep(SAMPLE_SECONDS)
    print(f"{'process':28}{'MiB':>10}{'MiB/h':>10}{'files/h':>10}{'threads/h':>10}")
    for name, rows in samples.items():
        late = np.array(rows[len(rows) // 4 :])
        if len(late) > 2:
            slopes = [np.polyfit(late[:, 0], late[:, column], 1)[0] for column in (1, 2, 3)]
            print(f"{name:28}{late[-1, 1]:10.0f}" + "".join(f"{slope:10.1f}" for slope in slopes))


def _serving(gateway: psutil.Process) -> Iterator[tuple[str, psutil.Process]]:
    yield "rag serve", gateway
    for child in gateway.children(recursive=True):
        with suppress(psutil.Error):
            line = " ".join(child.cmdline())
            if REPLICA in line:
                yield line.split(REPLICA)[1].split()[0].strip(":"), child
            elif "ServeController" in line or "ProxyActor" in line:
                yield line.split("::")[-1].split()[0], child


def _victims(scratch: Path, gateway: psutil.Process, endpoint: list[psutil.Popen], shape: str) -> Iterator[Victim]:
    yield Victim("gateway", partial(_find_replica, gateway, "Gateway"))
    yield Victim("runner", partial(_find_replica, gateway, "IngestRunner"), needs_ingest=True)
    if shape == "cluster":
        for name in MODELS:
            yield Victim(name.lower(), partial(_find_replica, gateway, name))
    pid_file = scratch / POSTGRES / "postmaster.pid"
    yield Victim(
        "postmaster",
        lambda: psutil.Process(int(pid_file.read_text().split()[0])),
        restart=lambda: embedded.start(scratch / POSTGRES),
    )
    yield Victim("endpoint", lambda: endpoint[-1], restart=lambda: endpoint.append(_start_endpoint()))


def _find_replica(gateway: psutil.Process, deployment: str) -> psutil.Process:
    """Waits for a replica of the deployment, because a killed one is replaced after a while."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        for child in gateway.children(recursive=True):
            with suppress(psutil.Error):
                if f"{REPLICA}{deployment}" in " ".join(child.cmdline()):
                    return child
        time.sleep(0.1)
    raise SystemExit(f"no replica of {deployment} within {TIMEOUT:g} s")


@contextmanager
def _endpoint() -> Iterator[list[psutil.Popen]]:
    """Yields the endpoint's processes, the running one last."""
    started = [_start_endpoint()]
    try:
        yield started
    finally:
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _start_endpoint() -> psutil.Popen:
    return psutil.Popen([sys.executable, "-m", "benchmarks.chat_endpoint", str(ENDPOINT_PORT)])


@contextmanager
def _gateway(scratch: Path, store: str, shape: str) -> Iterator[psutil.Process]:
    command = [*RAG, "serve", "--port", str(PORT), "--json", *_options(scratch, shape)]
    environment = {**os.environ, "RAG_STORE__URL": store, "RAG_HOME": str(scratch)}
    with (
        (scratch / "serve.log").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        if not (process.stdout and process.stdout.readline()):
            raise SystemExit((scratch / "serve.log").read_text())
        try:
            yield psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)


def _options(scratch: Path, shape: str) -> list[str]:
    if shape == "local":
        return [part for setting in ("embedding.type=hashing", _generation()) for part in ("--set", setting)]
    model = scratch / "model"
    write_random_model("minilm-reranker", model)
    scorer = {"type": "cross_encoder", "model": str(model)}
    reranked = {"type": "reranked", "retriever": {"type": "dense"}, "reranker": scorer, "depth": 10}
    settings = [_generation(), f"retrieval={json.dumps(reranked)}", f"guard.judge={json.dumps(scorer)}"]
    replicas = {"num_replicas": 1, "health_check_period_s": 1, "health_check_timeout_s": 10}
    models = [{"name": name, **replicas, "ray_actor_options": {"num_cpus": 0.1}} for name in MODELS]
    application = {
        "name": "rag",
        "route_prefix": "/",
        "import_path": "serve.app:build",
        "args": {"profile": "default", "set": settings, "deployments": [name.lower() for name in MODELS]},
        "deployments": [{"name": "Gateway", **replicas, "ray_actor_options": {"num_cpus": 0.5}}, *models],
    }
    config = {"proxy_location": "HeadOnly", "http_options": {"host": "127.0.0.1"}, "applications": [application]}
    (scratch / "cluster.yaml").write_text(yaml.safe_dump(config))
    return ["--config", str(scratch / "cluster.yaml")]


def _generation() -> str:
    endpoint = {"type": "openai", "model": "fixed", "base_url": ENDPOINT, "first_token_timeout_ms": 3000}
    return f"generation={json.dumps(endpoint)}"


def _ingest(scratch: Path, store: str, shape: str) -> None:
    docs = scratch / "docs"
    docs.mkdir()
    (docs / "keys.md").write_text("# Keys\n\nSigning keys are replaced every 45 days.\n")
    model = [] if shape == "cluster" else ["--set", "embedding.type=hashing"]
    subprocess.run([*RAG, "ingest", str(docs), "--store", store, "--quiet", "--runner", "inline", *model], check=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=("local", "cluster"), default="local")
    parser.add_argument("--fault", choices=("kill", "freeze"), default="kill")
    parser.add_argument("--victims", nargs="+", help="such as gateway, runner, judge, postmaster, endpoint")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--freeze-seconds", type=float, default=5.0)
    parser.add_argument("--minutes", type=float, default=0.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
