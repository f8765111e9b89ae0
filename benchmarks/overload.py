"""More clients than the gateway can serve: how many whole answers remain, and what do the other requests get?

Each client is one connection that asks one question after another, none twice, and waits for `Retry-After` after a 503.
The rate counts whole answers only. With --impatient, clients repeat a refused request at once.

    python -m benchmarks.overload                                 20,000 generated passages
    python -m benchmarks.overload --clients 1 16 64 --seconds 20
"""

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import aiohttp
import numpy as np

from benchmarks.corpus import drafts, passages, vectors
from benchmarks.machine import heading
from benchmarks.retrieval import COLLECTION, TENANT, load, questions
from benchmarks.scratch import exit_when_terminated, scratch_folder, server_in
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres

HOST, PORT = "127.0.0.1", 8128


@dataclass(slots=True)
class Outcomes:
    """How the requests of one load ended. Times are in seconds."""

    answers: list[float] = field(default_factory=list)
    refusals: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)


def main() -> None:
    arguments = _arguments()
    print(heading())
    texts = passages(arguments.rows)
    with scratch_folder() as scratch, server_in(scratch) as store:
        overrides = [f"store.url={store}", f"tenant={TENANT}", *arguments.set]
        settings = load_settings(None, "default", overrides, environment={})
        load(Postgres.open(store), settings, list(drafts(texts, vectors(arguments.rows), TENANT, COLLECTION)))
        from serve.app import build_local_application
        from serve.gateway_settings import GatewaySettings
        from serve.shape.local import serve_locally

        with serve_locally(lambda: build_local_application(GatewaySettings(own=settings)), HOST, PORT) as url:
            exit_when_terminated()
            asyncio.run(_measure(f"{url}/v1/answer", questions(texts), arguments))


async def _measure(url: str, questions_left: Iterator[str], arguments: argparse.Namespace) -> None:
    await _load(url, questions_left, 4, arguments.seconds, arguments.impatient)  # warms caches
    titles = ("answers/s", "of best", "p50 ms", "p99 ms", "503 share", "503 p99 ms", "failed")
    print(f"{'clients':>8} {''.join(f'{title:>12}' for title in titles)}")
    best = 0.0
    for clients in arguments.clients:
        began = time.perf_counter()
        outcomes = await _load(url, questions_left, clients, arguments.seconds, arguments.impatient)
        rate = len(outcomes.answers) / (time.perf_counter() - began)
        best = max(best, rate)
        p50, p99 = 1000 * np.percentile(outcomes.answers or [np.nan], [50, 99])
        requests = len(outcomes.answers) + len(outcomes.refusals) + outcomes.failures.total()
        refused = 1000 * np.percentile(outcomes.refusals, 99) if outcomes.refusals else 0.0
        print(
            f"{clients:8} {rate:12.1f} {rate / (best or 1.0):12.2f} {p50:12.1f} {p99:12.1f}"
            f" {len(outcomes.refusals) / requests:12.3f} {refused:12.1f} {outcomes.failures.total():12}"
            + (f"  {dict(outcomes.failures)}" if outcomes.failures else "")
        )


async def _load(url: str, questions_left: Iterator[str], clients: int, seconds: float, impatient: bool) -> Outcomes:
    outcomes, until = Outcomes(), time.perf_counter() + seconds
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def run_client() -> None:
            while (began := time.perf_counter()) < until:
                body = {"question": next(questions_left), "collection": COLLECTION}
                async with session.post(url, json=body) as response:
                    reply = await response.json(content_type=None)
                    taken = time.perf_counter() - began
                    if response.status == 200:
                        if reply["degraded"]:  # it had no time for a part, such as a leg
                            outcomes.failures[f"degraded: {', '.join(reply['degraded'])}"] += 1
                        else:
                            outcomes.answers.append(taken)
                    elif response.status == 503 and reply["error_type"] == "overloaded":
                        outcomes.refusals.append(taken)
                        if not impatient:
                            await asyncio.sleep(float(response.headers["Retry-After"]))
                    else:
                        outcomes.failures[f"{response.status} {reply['error_type']}"] += 1

        await asyncio.gather(*(run_client() for _ in range(clients)))
    return outcomes


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="number of passages, four per document")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4, 8, 16, 64])
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds of each load")
    parser.add_argument("--impatient", action="store_true", help="repeat refused requests at once")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
