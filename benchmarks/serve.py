"""The cost of HTTP and Ray Serve: the gateway compared with its minimum times, all in one run.

Two servers that do nothing are the minimum of any gateway: a FastAPI route under uvicorn, and a Ray Serve deployment
that listens without Serve's proxy, like the gateway. The retriever in this process, with the event loop and the garbage
collector settings of a replica, is the minimum of a search. Each client is one connection that asks one question after
another, none twice. CPU is that of the whole machine minus the clients', which share its cores.

Before the load tests, one client asks the bare deployment, the retriever in this process and the gateway in turn, in a
random order each time. All three thus run on the same machine with caches as on a busy server. The difference is the
cost of the gateway.

    python -m benchmarks.serve                                   20,000 generated passages
    python -m benchmarks.serve --rows 100000 --clients 1 8 --seconds 10
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import aiohttp
import numpy as np
import psutil
import uvloop

from benchmarks.corpus import drafts, passages, vectors
from benchmarks.machine import heading
from benchmarks.retrieval import COLLECTION, TENANT, load, questions
from benchmarks.scratch import exit_when_terminated, scratch_folder, server_in
from rag_core.config import Settings
from rag_core.settings import load_settings
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.postgres import Postgres
from rag_core.types import Query
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.retrieval import build_retriever
from serve.shape.garbage_collection import freeze_loaded_objects

HOST, GATEWAY, BARE = "127.0.0.1", 8123, 8124
K, ROUNDS, WARM = 10, 400, 30
BARE_SERVE = ("-m", "benchmarks.bare_serve", HOST, str(BARE))
UVICORN = """
import uvicorn
from fastapi import FastAPI

app = FastAPI()

@app.post("/")
async def nothing() -> dict[str, str]:
    return {"status": "ok"}

uvicorn.run(app, host="%s", port=%s, log_level="error")
"""

Ask = Callable[[str], Awaitable[None]]


@dataclass(slots=True)
class LoadTimes:
    """The times of one load test.

    `wall` and `cpu` are seconds. `milliseconds` has each request; `first_event` has the first event of each stream.
    """

    wall: float = 0.0
    cpu: float = 0.0
    milliseconds: list[float] = field(default_factory=list)
    first_event: list[float] = field(default_factory=list)
    errors: int = 0


def main() -> None:
    arguments = _arguments()
    print(heading())
    texts = passages(arguments.rows)
    with scratch_folder() as scratch, server_in(scratch) as store:
        overrides = [f"store.url={store}", f"tenant={TENANT}", "answering.budget=none", *arguments.set]
        settings = load_settings(None, "default", overrides, environment={})
        load(Postgres.open(store), settings, list(drafts(texts, vectors(arguments.rows), TENANT, COLLECTION)))
        _measure(settings, questions(texts), arguments.clients, arguments.seconds)


def _measure(settings: Settings, questions_left: Iterator[str], clients: Sequence[int], seconds: float) -> None:
    titles = ("p50 ms", "p95 ms", "p99 ms", "requests/s", "CPU ms", "errors")
    print(f"{'':24} {'clients':>7} {''.join(f'{title:>11}' for title in titles)}")
    for number in clients:
        uvloop.run(_load_in_process(settings, questions_left, number, seconds))
    with _run_server("-c", UVICORN % (HOST, BARE)) as bare:
        _load_over_http("bare FastAPI", bare, questions_left, clients, seconds)
    with _run_server(*BARE_SERVE) as bare:
        _load_over_http("bare Serve", bare, questions_left, clients, seconds)
    from serve.app import build_local_application
    from serve.gateway_settings import GatewaySettings
    from serve.shape.local import serve_locally

    with serve_locally(lambda: build_local_application(GatewaySettings(own=settings)), HOST, GATEWAY) as url:
        exit_when_terminated()
        with _run_server(*BARE_SERVE) as bare:
            uvloop.run(_ask_in_turn(settings, questions_left, bare, f"{url}/v1/retrieve"))
        _load_over_http("/v1/retrieve", f"{url}/v1/retrieve", questions_left, clients, seconds)
        _load_over_http("/v1/answer", f"{url}/v1/answer", questions_left, clients, seconds)
        _load_over_http("/v1/answer, streamed", f"{url}/v1/answer", questions_left, clients, seconds, stream=True)


async def _load_in_process(settings: Settings, questions_left: Iterator[str], clients: int, seconds: float) -> None:
    corpus = CorpusReader(Postgres.open(settings.store.url))
    retriever, times = build_retriever(settings, corpus, RemoteModels()), LoadTimes()

    async def ask(question: str) -> None:
        await retriever.retrieve(Query(text=question, tenant=TENANT, collection=COLLECTION), K)

    try:
        for _ in range(20):
            await ask(next(questions_left))
        freeze_loaded_objects()
        await _run_clients(ask, questions_left, clients, seconds, times)
    finally:
        await corpus.close()
    _show("retriever, in process", clients, times)


def _load_over_http(
    name: str, url: str, questions_left: Iterator[str], clients: Sequence[int], seconds: float, stream: bool = False
) -> None:
    for number in clients:
        times = LoadTimes()
        asyncio.run(_send_requests(url, questions_left, number, seconds, times, stream))
        _show(name, number, times)


async def _send_requests(
    url: str, questions_left: Iterator[str], clients: int, seconds: float, times: LoadTimes, stream: bool
) -> None:
    key = "question" if url.endswith("answer") else "query"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(question: str) -> None:
            body = {key: question, "collection": COLLECTION, **({"stream": True} if stream else {})}
            began = time.perf_counter()
            async with session.post(url, json=body) as response:
                if stream:
                    await response.content.readline()
                    times.first_event.append(1000 * (time.perf_counter() - began))
                await response.read()
                times.errors += response.status != 200

        for _ in range(10):
            await ask(next(questions_left))
        times.first_event.clear()
        client_cpu = time.process_time()
        await _run_clients(ask, questions_left, clients, seconds, times)
        times.cpu -= time.process_time() - client_cpu


async def _ask_in_turn(settings: Settings, questions_left: Iterator[str], bare: str, retrieve: str) -> None:
    corpus = CorpusReader(Postgres.open(settings.store.url))
    retriever = build_retriever(settings, corpus, RemoteModels())
    async with aiohttp.ClientSession() as session:

        async def over(url: str, question: str) -> None:
            async with session.post(url, json={"query": question, "collection": COLLECTION}) as response:
                await response.read()
                response.raise_for_status()

        async def in_process(question: str) -> None:
            await retriever.retrieve(Query(text=question, tenant=TENANT, collection=COLLECTION), K)

        asks = (partial(over, bare), in_process, partial(over, retrieve))
        milliseconds, random = np.zeros((WARM + ROUNDS, len(asks))), np.random.default_rng(7)
        for number in range(WARM + ROUNDS):
            if number == WARM:
                freeze_loaded_objects()
            for index in random.permutation(len(asks)):  # the previous request decides what the caches hold
                milliseconds[number, index] = await _time_request(asks[index], next(questions_left))
    await corpus.close()
    milliseconds = milliseconds[WARM:]
    floor, in_process_time, gateway = np.median(milliseconds, axis=0)
    costs = np.median(milliseconds[:, 2] - milliseconds[:, 1])
    print(
        f"in turn, p50 ms: bare Serve {floor:.1f}, in process {in_process_time:.1f}, /v1/retrieve {gateway:.1f}; "
        f"the gateway costs {costs:.1f}: bare Serve plus {costs - floor:.1f}"
    )


async def _time_request(ask: Ask, question: str) -> float:
    began = time.perf_counter()
    await ask(question)
    return 1000 * (time.perf_counter() - began)


async def _run_clients(ask: Ask, questions_left: Iterator[str], clients: int, seconds: float, times: LoadTimes) -> None:
    """Runs the clients for these seconds, and adds their times. The CPU time is that of the whole machine."""
    busy, began = _cpu_seconds(), time.perf_counter()

    async def client() -> None:
        while (start := time.perf_counter()) < began + seconds:
            await ask(next(questions_left))
            times.milliseconds.append(1000 * (time.perf_counter() - start))

    await asyncio.gather(*(client() for _ in range(clients)))
    times.wall = time.perf_counter() - began
    times.cpu = _cpu_seconds() - busy


def _cpu_seconds() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait)


def _show(name: str, clients: int, times: LoadTimes) -> None:
    p50, p95, p99 = np.percentile(times.milliseconds, [50, 95, 99])
    count = len(times.milliseconds)
    rate, cpu = count / times.wall, 1000 * times.cpu / count
    print(f"{name:24} {clients:7} {p50:10.1f} {p95:10.1f} {p99:10.1f} {rate:10.1f} {cpu:10.1f} {times.errors:10}")
    if times.first_event:
        p50, p95 = np.percentile(times.first_event, [50, 95])
        print(f"{'  first event':24} {clients:7} {p50:10.1f} {p95:10.1f}")


@contextmanager
def _run_server(*python: str) -> Iterator[str]:
    """Runs Python with these arguments and yields its URL at the port `BARE`. It must listen within 60 seconds."""
    with subprocess.Popen([sys.executable, *python]) as process:
        try:
            asyncio.run(_await_port(process))
            yield f"http://{HOST}:{BARE}/"
            _check_alive(process)
        finally:
            process.terminate()


async def _await_port(process: "subprocess.Popen[bytes]") -> None:
    for _ in range(1200):
        _check_alive(process)
        try:
            _, writer = await asyncio.open_connection(HOST, BARE)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise TimeoutError("the bare server did not start in 60 s")


def _check_alive(process: "subprocess.Popen[bytes]") -> None:
    """Raises RuntimeError if the process has ended: then its port is closed or belongs to another process."""
    if (code := process.poll()) is not None:
        raise RuntimeError(f"the bare server ended with exit code {code}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="number of passages, four per document")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of each measurement")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
