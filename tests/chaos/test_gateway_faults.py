"""A gateway whose store goes away, and one whose readers do: it says so, recovers, and keeps nothing of them."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import httpx2
import psutil
import pytest
from hosts import RAG, SETTINGS, Host, postmaster, with_interrupts

from benchmarks.free_port import find_free_port
from rag_core.storage import embedded

pytestmark = [pytest.mark.chaos, pytest.mark.postgres, pytest.mark.ray, pytest.mark.timeout(300)]

AWAY = 5.0
RECOVERY = 10.0
"""Seconds, in which the first request after an outage has to succeed."""
READERS, AT_ONCE = 1000, 25
GROWTH = 60 << 20
"""Bytes that a process may have grown by: what allocators keep, not a thousand answers."""
QUESTION = {"question": "Which gate has the key of the tide lamp?"}


@pytest.fixture
def gateway(host: Host) -> Iterator[str]:
    """The address of a gateway over a store that it cannot start again by itself."""
    assert host.ingest("inline").wait(120) == 0
    port = find_free_port()
    environment = {**os.environ, "RAG_STORE__URL": host.store.dsn, "RAG_HOME": str(host.home)}
    command = [*RAG, "serve", "--port", str(port), "--json", *SETTINGS]
    with subprocess.Popen(with_interrupts(command), env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)


def test_a_store_that_is_away_is_503_with_retry_after_and_its_return_needs_no_restart(gateway: str, host: Host) -> None:
    def retrieve() -> httpx2.Response:
        return httpx2.post(f"{gateway}/v1/retrieve", json={"query": QUESTION["question"]}, timeout=30.0)

    assert retrieve().status_code == 200
    postmaster(host).send_signal(signal.SIGQUIT)
    deadline, refusals = time.monotonic() + AWAY, []
    while time.monotonic() < deadline:
        refusals.append(retrieve())
    assert refusals
    assert {response.status_code for response in refusals} == {503}
    assert all(response.headers["Retry-After"] for response in refusals)
    assert all(response.json()["retryable"] for response in refusals)
    assert httpx2.get(f"{gateway}/readyz").status_code == 503
    assert httpx2.get(f"{gateway}/healthz").status_code == 200

    embedded.start(host.home / "postgres")
    began = time.monotonic()
    while retrieve().status_code != 200:
        assert time.monotonic() < began + RECOVERY
        time.sleep(0.1)


def test_a_thousand_readers_that_leave_amid_an_answer_leave_nothing_behind(gateway: str) -> None:
    asyncio.run(_leave_amid_answers(gateway, 100))  # what grows once, grows here
    _wait_until_idle()
    before = _memory()
    asyncio.run(_leave_amid_answers(gateway, READERS))
    _wait_until_idle()
    assert _memory() - before < GROWTH
    response = httpx2.post(f"{gateway}/v1/answer", json=QUESTION, timeout=30.0)
    assert response.status_code == 200


async def _leave_amid_answers(url: str, readers: int) -> None:
    async with httpx2.AsyncClient(timeout=60.0) as client:
        turn = asyncio.Semaphore(AT_ONCE)

        async def read() -> None:
            body = {**QUESTION, "stream": True}
            async with turn, client.stream("POST", f"{url}/v1/answer", json=body) as response:
                await anext(response.aiter_lines())

        await asyncio.gather(*(read() for _ in range(readers)))


def _wait_until_idle() -> None:
    """Waits until the gateway is idle: its replica takes less than a tenth of a CPU for a second."""
    replicas, deadline = _replicas(), time.monotonic() + 30.0
    _cpu_percent(replicas)
    while time.monotonic() < deadline:
        time.sleep(1.0)
        if _cpu_percent(replicas) < 10.0:
            return
    pytest.fail("the gateway still works, 30 s after its last reader has left")


def _cpu_percent(replicas: Sequence[psutil.Process]) -> float:
    """The load in percent of one CPU since the previous call."""
    return sum(replica.cpu_percent() for replica in replicas)


def _memory() -> int:
    return sum(replica.memory_info().rss for replica in _replicas())


def _replicas() -> list[psutil.Process]:
    replicas = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            if "ServeReplica" in " ".join(process.cmdline()):
                replicas.append(process)
    assert replicas
    return replicas
