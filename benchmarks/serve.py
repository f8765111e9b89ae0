"""What HTTP and Ray Serve add to a search: the gateway beside its floors, all in one run.

A FastAPI route that does nothing under uvicorn, and a Ray Serve deployment that does nothing and listens by itself as
the gateway does, are what no gateway can do better than; the retriever in this process, with the event loop and the
garbage collector of a replica, is what it serves. Clients are as many connections that ask one question after another,
none twice. CPU is that of the whole machine but the clients', which share its cores.

Before they come one client asks the bare deployment, the retriever in this process and the gateway in turn, in a random
order each time: all meet the same machine, with its caches as a server at work has them, and the difference is what the
gateway costs.

    python -m benchmarks.serve                                   20,000 made-up passages
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
class Timed:
    """Milliseconds of each request; `first` of each stream's first event."""

    wall: float = 0.0
    cpu: float = 0.0
    milliseconds: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    errors: int = 0


def main() -> None:
    arguments = _arguments()
    print(heading())
    texts = passages(arguments.rows)
    with scratch_folder() as scratch, server_in(scratch) as store:
        named = [f"store.url={store}", f"tenant={TENANT}", "answering.budget=none", *arguments.set]
        settings = load_settings(None, "default", named, environment={})
        load(Postgres.open(store), settings, list(drafts(texts, vectors(arguments.rows), TENANT, COLLECTION)))
        _measure(settings, questions(texts), arguments.clients, arguments.seconds)


def _measure(settings: Settings, asked: Iterator[str], clients: Sequence[int], seconds: float) -> None:
    titles = ("p50 ms", "p95 ms", "p99 ms", "requests/s", "CPU ms", "errors")
    print(f"{'':24} {'clients':>7} {''.join(f'{title:>11}' for title in titles)}")
    for number in clients:
        uvloop.run(_in_process(settings, asked, number, seconds))
    with _running("-c", UVICORN % (HOST, BARE)) as bare:
        _ask_all("bare FastAPI", bare, asked, clients, seconds)
    with _running(*BARE_SERVE) as bare:
        _ask_all("bare Serve", bare, asked, clients, seconds)
    from serve.app import build_local_app
    from serve.shape.local import serve_locally

    with serve_locally(lambda: build_local_app(settings), HOST, GATEWAY) as url:
        exit_when_terminated()
        with _running(*BARE_SERVE) as bare:
            uvloop.run(_in_turn(settings, asked, bare, f"{url}/v1/retrieve"))
        _ask_all("/v1/retrieve", f"{url}/v1/retrieve", asked, clients, seconds)
        _ask_all("/v1/answer", f"{url}/v1/answer", asked, clients, seconds)
        _ask_all("/v1/answer, streamed", f"{url}/v1/answer", asked, clients, seconds, stream=True)


async def _in_process(settings: Settings, asked: Iterator[str], clients: int, seconds: float) -> None:
    corpus = CorpusReader(Postgres.open(settings.store.url))
    chosen, timed = build_retriever(settings, corpus), Timed()

    async def ask(question: str) -> None:
        await chosen.retrieve(Query(text=question, tenant=TENANT, collection=COLLECTION), K)

    try:
        for _ in range(20):
            await ask(next(asked))
        freeze_loaded_objects()
        await _loaded(ask, asked, clients, seconds, timed)
    finally:
        await corpus.close()
    _show("retriever, in process", clients, timed)


def _ask_all(
    name: str, url: str, asked: Iterator[str], clients: Sequence[int], seconds: float, stream: bool = False
) -> None:
    for number in clients:
        timed = Timed()
        asyncio.run(_over_http(url, asked, number, seconds, timed, stream))
        _show(name, number, timed)


async def _over_http(url: str, asked: Iterator[str], clients: int, seconds: float, timed: Timed, stream: bool) -> None:
    key = "question" if url.endswith("answer") else "query"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(question: str) -> None:
            body = {key: question, "collection": COLLECTION, **({"stream": True} if stream else {})}
            began = time.perf_counter()
            async with session.post(url, json=body) as response:
                if stream:
                    await response.content.readline()
                    timed.first.append(1000 * (time.perf_counter() - began))
                await response.read()
                timed.errors += response.status != 200

        for _ in range(10):
            await ask(next(asked))
        timed.first.clear()
        own = time.process_time()
        await _loaded(ask, asked, clients, seconds, timed)
        timed.cpu -= time.process_time() - own


async def _in_turn(settings: Settings, asked: Iterator[str], bare: str, retrieve: str) -> None:
    corpus = CorpusReader(Postgres.open(settings.store.url))
    chosen = build_retriever(settings, corpus)
    async with aiohttp.ClientSession() as session:

        async def over(url: str, question: str) -> None:
            async with session.post(url, json={"query": question, "collection": COLLECTION}) as response:
                await response.read()
                response.raise_for_status()

        async def in_process(question: str) -> None:
            await chosen.retrieve(Query(text=question, tenant=TENANT, collection=COLLECTION), K)

        asks = (partial(over, bare), in_process, partial(over, retrieve))
        took, drawn = np.zeros((WARM + ROUNDS, len(asks))), np.random.default_rng(7)
        for number in range(WARM + ROUNDS):
            if number == WARM:
                freeze_loaded_objects()
            for place in drawn.permutation(len(asks)):  # who comes after whom decides what caches it finds
                took[number, place] = await _timed(asks[place], next(asked))
    await corpus.close()
    milliseconds = took[WARM:]
    floor, own, gateway = np.median(milliseconds, axis=0)
    costs = np.median(milliseconds[:, 2] - milliseconds[:, 1])
    print(
        f"in turn, p50 ms: bare Serve {floor:.1f}, in process {own:.1f}, /v1/retrieve {gateway:.1f}, "
        f"which costs {costs:.1f}: bare Serve and {costs - floor:.1f}"
    )


async def _timed(ask: Ask, question: str) -> float:
    began = time.perf_counter()
    await ask(question)
    return 1000 * (time.perf_counter() - began)


async def _loaded(ask: Ask, asked: Iterator[str], clients: int, seconds: float, timed: Timed) -> None:
    """Its CPU is the whole machine's."""
    busy, began = _busy(), time.perf_counter()

    async def client() -> None:
        while (start := time.perf_counter()) < began + seconds:
            await ask(next(asked))
            timed.milliseconds.append(1000 * (time.perf_counter() - start))

    await asyncio.gather(*(client() for _ in range(clients)))
    timed.wall = time.perf_counter() - began
    timed.cpu = _busy() - busy


def _busy() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait)


def _show(name: str, clients: int, timed: Timed) -> None:
    p50, p95, p99 = np.percentile(timed.milliseconds, [50, 95, 99])
    count = len(timed.milliseconds)
    rate, cpu = count / timed.wall, 1000 * timed.cpu / count
    print(f"{name:24} {clients:7} {p50:10.1f} {p95:10.1f} {p99:10.1f} {rate:10.1f} {cpu:10.1f} {timed.errors:10}")
    if timed.first:
        p50, p95 = np.percentile(timed.first, [50, 95])
        print(f"{'  first event':24} {clients:7} {p50:10.1f} {p95:10.1f}")


@contextmanager
def _running(*python: str) -> Iterator[str]:
    """The url of what listens at BARE, in a process of its own."""
    with subprocess.Popen([sys.executable, *python]) as process:
        try:
            asyncio.run(_up(process))
            yield f"http://{HOST}:{BARE}/"
            _living(process)
        finally:
            process.terminate()


async def _up(process: "subprocess.Popen[bytes]") -> None:
    for _ in range(1200):
        _living(process)
        try:
            _, writer = await asyncio.open_connection(HOST, BARE)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise TimeoutError("what a benchmark compares with did not start in 60 s")


def _living(process: "subprocess.Popen[bytes]") -> None:
    """RuntimeError if it has ended: then somebody else answers at its port, or nobody."""
    if (code := process.poll()) is not None:
        raise RuntimeError(f"what a benchmark compares with ended with {code}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="passages, four a document")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
