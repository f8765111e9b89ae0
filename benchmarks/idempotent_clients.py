"""Clients that send requests, each of which is safe to repeat, and what became of the requests.

A client repeats a request once, and only if its connection broke. One that got a response is never repeated.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from uuid import uuid4

import aiohttp
import numpy as np

TIMEOUT = 60.0
"""Seconds after which a request counts as failed."""
POLL_SECONDS = 0.25
"""Seconds between two checks of a gateway by the load balancer."""

HEADER = (
    f"{'phase':22}{'requests':>9}{'failed':>8}{'retried':>9}{'degraded':>10}{'p50 ms':>9}{'p95 ms':>9}"
    f"  {'ratios':>10}{'gap s':>8}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`error` is empty, or a status or an exception's name. `at` is on the clock of `time.monotonic`."""

    at: float
    seconds: float
    retried: bool = False
    degraded: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The outcomes of one phase. `gap_s` is the longest time without a response, in seconds."""

    requests: int
    failed: int
    retried: int
    degraded: int
    p50_ms: float
    p95_ms: float
    gap_s: float
    errors: Mapping[str, int]


@dataclass(slots=True)
class Balancer:
    """Passes requests to the gateways in turn, without those whose `/readyz` does not respond with 200."""

    urls: Sequence[str]
    ready: list[str] = field(default_factory=list)
    turn: "count[int]" = field(default_factory=count)

    async def watch(self, session: aiohttp.ClientSession) -> None:
        while True:
            self.ready = [url for url in self.urls if await _is_ready(session, url)]
            await asyncio.sleep(POLL_SECONDS)

    def choose(self) -> str:
        """Without a ready gateway, the next of all."""
        urls = self.ready or self.urls
        return urls[next(self.turn) % len(urls)]


@dataclass(slots=True)
class Load:
    """The outcomes of the clients so far. They stop when `stop` is set. `pause` is in seconds, after each response."""

    question: str
    balancer: Balancer
    pause: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def summarize(self, start: float, end: float) -> Summary:
        """The requests that ended between these times."""
        outcomes = sorted((outcome for outcome in self.outcomes if start <= outcome.at < end), key=lambda one: one.at)
        times = [1000 * outcome.seconds for outcome in outcomes if not outcome.error] or [float("nan")]
        p50, p95 = np.percentile(times, [50, 95])
        successes = [start, *(outcome.at for outcome in outcomes if not outcome.error), end]
        return Summary(
            requests=len(outcomes),
            failed=sum(bool(outcome.error) for outcome in outcomes),
            retried=sum(outcome.retried for outcome in outcomes),
            degraded=sum(outcome.degraded for outcome in outcomes),
            p50_ms=float(p50),
            p95_ms=float(p95),
            gap_s=float(np.diff(successes).max()),
            errors=Counter(outcome.error for outcome in outcomes if outcome.error),
        )


@asynccontextmanager
async def send_requests(load: Load, clients: int) -> AsyncIterator[None]:
    """Sends requests during the block. The outcomes are complete after it."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2.0)) as probes:
        watch = asyncio.create_task(load.balancer.watch(probes))
        tasks = [asyncio.create_task(_send_until_stopped(load)) for _ in range(clients)]
        try:
            yield
        finally:
            load.stop.set()
            await asyncio.gather(*tasks)
            watch.cancel()


async def _send_until_stopped(load: Load) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session:
        for number in count():
            if load.stop.is_set():
                return
            load.outcomes.append(await _send(session, load, answers=bool(number % 2)))
            await asyncio.sleep(load.pause)


async def _send(session: aiohttp.ClientSession, load: Load, *, answers: bool) -> Outcome:
    """Sends a search or a question."""
    started, headers = time.monotonic(), {"Idempotency-Key": str(uuid4())}
    path, body = ("answer", {"question": load.question}) if answers else ("retrieve", {"query": load.question})
    error = ""
    for is_retry in (False, True):
        try:
            url = f"{load.balancer.choose()}/v1/{path}"
            async with session.post(url, json=body, headers=headers) as response:
                content = await response.read()
                error = "" if response.status == 200 else f"{response.status} {content[:160].decode(errors='replace')}"
                degraded = response.status == 200 and bool((await response.json())["degraded"])
            end = time.monotonic()
            return Outcome(at=end, seconds=end - started, retried=is_retry, degraded=degraded, error=error)
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as failure:
            error = type(failure).__name__
        except TimeoutError:
            error = "timeout"
            break
    return Outcome(at=time.monotonic(), seconds=time.monotonic() - started, retried=True, error=error)


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    with suppress(aiohttp.ClientError, TimeoutError):
        async with session.get(f"{url}/readyz") as response:
            return bool(response.status == 200)
    return False


@dataclass(slots=True)
class Phases:
    """The phases of a load, in order. The first one is the base of the ratios."""

    load: Load
    names: list[str] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)

    def begin(self, name: str) -> None:
        self.names.append(name)
        self.starts.append(time.monotonic())

    def summaries(self) -> dict[str, Summary]:
        """The summaries of all phases. The last one ends now."""
        ends = [*self.starts[1:], time.monotonic()]
        pairs = zip(self.names, zip(self.starts, ends, strict=True), strict=True)
        return {name: self.load.summarize(start, end) for name, (start, end) in pairs}

    def print_table(self) -> Mapping[str, Summary]:
        """Prints a line for each phase, and returns the summaries."""
        summaries = self.summaries()
        base = next(iter(summaries.values()))
        print(HEADER, *(_describe(name, summary, base) for name, summary in summaries.items()), sep="\n", flush=True)
        return summaries


def _describe(name: str, summary: Summary, base: Summary) -> str:
    ratios = f"{summary.p50_ms / base.p50_ms:.2f} {summary.p95_ms / base.p95_ms:.2f}"
    return (
        f"{name:22}{summary.requests:9}{summary.failed:8}{summary.retried:9}{summary.degraded:10}"
        f"{summary.p50_ms:9.0f}{summary.p95_ms:9.0f}  {ratios:>10}{summary.gap_s:8.1f}"
        f"{'  ' + str(dict(summary.errors)) if summary.errors else ''}"
    )
