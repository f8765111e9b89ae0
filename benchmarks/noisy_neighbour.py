"""One tenant that searches at ten times its limit, beside a quiet one: how much slower are the quiet one's searches?

Three gateways serve one store, each in its own process: with rate limits and fair turns, with fair turns only, and with
neither. For the last one, both load the same tenant, so they wait in one queue. Each round measures the quiet tenant at
each gateway, alone and beside the noise, so that changes of the machine's speed concern all of them. Everything runs on
loopback, and the noise does not wait after a refusal.

    python -m benchmarks.noisy_neighbour                         20,000 generated passages
    python -m benchmarks.noisy_neighbour --rounds 2 --rows 2000
"""

import argparse
import asyncio
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle

import aiohttp
import numpy as np

from benchmarks.corpus import drafts, passages, vectors
from benchmarks.machine import heading
from benchmarks.retrieval import BATCH, COLLECTION, questions
from benchmarks.scratch import exit_when_terminated, scratch_folder, server_in
from benchmarks.targets import begin_job
from rag_core.config import Settings
from rag_core.scopes import ROLES
from rag_core.settings import load_settings
from rag_core.storage.keys import Keys
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres
from rag_core.wiring.embedding import embedding_space

HOST, PORT = "127.0.0.1", 8130
QUIET, NOISY = "quiet-tenant", "noisy-tenant"
NOISE, QUIETNESS = 10, 0.3
"""The searches of the noisy and of the quiet tenant, as multiples of the limit of a tenant."""
NOISY_USERS = 4
MAX_OUTSTANDING = 64
LEAD_SECONDS = 2.0
"""Seconds of noise before the measurement, in which the noisy tenant uses its burst up."""


@dataclass(slots=True)
class Gateway:
    """A gateway, the keys of its noise, and the quiet tenant's milliseconds, alone and beside the noise."""

    name: str
    url: str
    noise_keys: Sequence[str]
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    failures: Counter[int] = field(default_factory=Counter)
    noise: Counter[int] = field(default_factory=Counter)


def main() -> None:
    arguments = _arguments()
    print(heading())
    texts = passages(arguments.rows)
    with scratch_folder() as scratch, server_in(scratch) as store, ExitStack() as servers:
        overrides = [f"store.url={store}", "auth.mode=keys", *arguments.set]
        settings = load_settings(None, "default", overrides, environment={})
        postgres = Postgres.open(store)
        for tenant in (QUIET, NOISY):
            _publish(postgres, settings, tenant, texts)
        quiet_key, *_ = _create_keys(postgres, QUIET, 1)
        strangers = _create_keys(postgres, NOISY, NOISY_USERS)
        colleagues = _create_keys(postgres, QUIET, NOISY_USERS)
        unlimited = load_settings(None, "default", [*overrides, "rate_limits.enabled=false"], environment={})
        gateways = [
            Gateway("limits, fair turns", servers.enter_context(_serve(settings, PORT)), strangers),
            Gateway("fair turns", servers.enter_context(_serve(unlimited, PORT + 1)), strangers),
            Gateway("neither", servers.enter_context(_serve(unlimited, PORT + 2)), colleagues),
        ]
        limit = settings.rate_limits.tenant.searches / 60
        asyncio.run(_measure(gateways, quiet_key, questions(texts), limit, arguments))


def _publish(postgres: Postgres, settings: Settings, tenant: str, texts: Sequence[str]) -> None:
    documents = list(drafts(texts, vectors(len(texts)), tenant, COLLECTION))
    target = begin_job(postgres, tenant, COLLECTION, embedding_space(settings.embedding), documents)
    with closing(target.open()) as writer:
        for first in range(0, len(documents), BATCH):
            writer.publish(documents[first : first + BATCH])
    Maintenance().run(postgres, tenant)


def _create_keys(postgres: Postgres, tenant: str, count: int) -> list[str]:
    """Each key is a user of its own."""
    with postgres.connect() as connection:
        return [Keys(connection, tenant).create(ROLES["reader"]).text for _ in range(count)]


@contextmanager
def _serve(settings: Settings, port: int) -> Iterator[str]:
    """Runs a gateway in a process, and yields its URL."""
    arguments = settings.model_dump_json(exclude_unset=True), port
    process = multiprocessing.get_context("spawn").Process(target=run_gateway, args=arguments)
    process.start()
    try:
        yield f"http://{HOST}:{port}"
    finally:
        process.terminate()
        process.join()


def run_gateway(settings_json: str, port: int) -> None:
    """The process of a gateway."""
    import uvicorn

    from serve.gateway import build_fastapi
    from serve.profiles import ServedProfiles
    from serve.services import open_shared_resources
    from serve.shape.garbage_collection import freeze_loaded_objects

    settings = Settings.model_validate_json(settings_json)
    app = build_fastapi(ServedProfiles(open_shared_resources(settings).build_services(settings)))
    freeze_loaded_objects()
    uvicorn.run(app, host=HOST, port=port, log_level="warning", ws="none")


async def _measure(
    gateways: Sequence[Gateway],
    quiet_key: str,
    questions_left: Iterator[str],
    limit: float,
    arguments: argparse.Namespace,
) -> None:
    """`limit`: searches of a tenant a second."""
    pause = 1 / (QUIETNESS * limit)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for gateway in gateways:
            await _wait_until_ready(session, gateway)
            await _search_quietly(session, gateway, quiet_key, questions_left, pause, arguments.seconds)  # warms caches
        for _ in range(arguments.rounds):
            for gateway in gateways:
                quiet = session, gateway, quiet_key, questions_left, pause, arguments.seconds
                gateway.alone += await _search_quietly(*quiet)
                noise = asyncio.create_task(_make_noise(session, gateway, questions_left, NOISE * limit))
                await asyncio.sleep(LEAD_SECONDS)
                gateway.beside += await _search_quietly(*quiet)
                noise.cancel()
                with suppress(asyncio.CancelledError):
                    await noise
    titles = ("p50 alone", "p95 alone", "p95 beside", "p50 ratio", "p95 ratio", "not 200")
    print(f"{'the quiet tenant':20} {''.join(f'{title:>12}' for title in titles)}  noise by status")
    for gateway in gateways:
        _show(gateway)


async def _wait_until_ready(session: aiohttp.ClientSession, gateway: Gateway) -> None:
    while True:
        with suppress(aiohttp.ClientError):
            async with session.get(f"{gateway.url}/healthz") as response:
                if response.status == 200:
                    return
        await asyncio.sleep(0.5)


async def _search_quietly(
    session: aiohttp.ClientSession,
    gateway: Gateway,
    key: str,
    questions_left: Iterator[str],
    pause: float,
    seconds: float,
) -> list[float]:
    """The milliseconds of each successful search. One begins `pause` seconds after the other, or at its end."""
    milliseconds, until = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        status = await _search(session, gateway.url, key, next(questions_left))
        taken = time.perf_counter() - began
        if status == 200:
            milliseconds.append(1000 * taken)
        else:
            gateway.failures[status] += 1
        await asyncio.sleep(max(0.0, pause - taken))
    return milliseconds


async def _make_noise(
    session: aiohttp.ClientSession, gateway: Gateway, questions_left: Iterator[str], rate: float
) -> None:
    """Starts `rate` searches a second until cancelled, unless too many are in progress."""
    outstanding: set[asyncio.Task[None]] = set()

    async def search(key: str) -> None:
        gateway.noise[await _search(session, gateway.url, key, next(questions_left))] += 1

    keys, due = cycle(gateway.noise_keys), time.perf_counter()
    try:
        while True:
            if len(outstanding) < MAX_OUTSTANDING:
                task = asyncio.create_task(search(next(keys)))
                outstanding.add(task)
                task.add_done_callback(outstanding.discard)
            due = max(due + 1 / rate, time.perf_counter() - 1.0)  # a late start is made up for, within a second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
    finally:
        await asyncio.gather(*outstanding)


async def _search(session: aiohttp.ClientSession, url: str, key: str, question: str) -> int:
    body, headers = {"query": question, "collection": COLLECTION}, {"Authorization": f"Bearer {key}"}
    async with session.post(f"{url}/v1/retrieve", json=body, headers=headers) as response:
        await response.read()
        return response.status


def _show(gateway: Gateway) -> None:
    p50, p95 = np.percentile(gateway.alone, [50, 95])
    p50_beside, p95_beside = np.percentile(gateway.beside or [np.nan], [50, 95])
    failed = gateway.failures.total() / (gateway.failures.total() + len(gateway.alone) + len(gateway.beside))
    print(
        f"{gateway.name:20} {p50:12.1f}{p95:12.1f}{p95_beside:12.1f}{p50_beside / p50:12.2f}{p95_beside / p95:12.2f}"
        f"{failed:12.3f}  {dict(sorted(gateway.noise.items()))}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="number of passages of each tenant")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=6.0, help="seconds of each measurement")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    exit_when_terminated()
    main()
