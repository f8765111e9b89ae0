"""The state of the gateway's dependencies: it is probed seldom, and returned soon."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx2
import psycopg
import pytest
import quiet_serve  # noqa: F401
from fakes.serving import NOWHERE, scripted_graph
from ray.serve.exceptions import BackPressureError

from rag_core.breaker import Breaker
from rag_core.errors import CircuitOpenError, GenerationError, ModelError, OverloadedError
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.postgres import Postgres
from rag_core.types import Query
from serve import readiness as dependencies
from serve.gateway import build_fastapi
from serve.models import model_connections
from serve.profiles import ServedProfiles
from serve.readiness import Dependency, DependencyStatus, model_dependency, store_dependency


class ScriptedProbe:
    """A probe that raises these errors in turn, or hangs."""

    def __init__(self, *outcomes: Exception | None, hangs: bool = False) -> None:
        self._outcomes, self._hangs, self.count = list(outcomes), hangs, 0

    async def __call__(self) -> None:
        self.count += 1
        if self._hangs:
            await asyncio.Event().wait()
        if error := (self._outcomes.pop(0) if self._outcomes else None):
            raise error


def run(work: Callable[[], Awaitable[DependencyStatus]]) -> DependencyStatus:
    async def call_work() -> DependencyStatus:
        return await work()

    return asyncio.run(call_work())


def test_a_dependency_that_answers_is_available() -> None:
    assert run(Dependency(ScriptedProbe(), required=True).status) == DependencyStatus(ok=True, required=True)


def test_a_failure_reports_its_reason_and_the_state_of_its_circuit() -> None:
    dependency = Dependency(ScriptedProbe(ModelError("the reranker broke")), required=False, breaker=lambda: "open")
    status = run(dependency.status)
    assert status.to_json() == {"ok": False, "required": False, "reason": "the reranker broke", "breaker": "open"}


def test_an_overloaded_dependency_is_available() -> None:
    assert run(Dependency(ScriptedProbe(OverloadedError("full")), required=True).status).ok


def test_a_dependency_that_hangs_is_unavailable_after_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "CHECK_TIMEOUT", 0.01)
    assert run(Dependency(ScriptedProbe(hangs=True), required=True).status).reason == "no response within 0.01 s"


def test_a_hundred_probes_ask_once_and_later_ones_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(dependencies, "time", lambda: now[0])
    call = ScriptedProbe(None, ModelError("gone"))
    dependency = Dependency(call, required=True)

    async def probes() -> list[bool]:
        first = await asyncio.gather(*(dependency.status() for _ in range(100)))
        assert call.count == 1
        now[0] += dependencies.CACHE_SECONDS
        return [all(status.ok for status in first), (await dependency.status()).ok]

    assert asyncio.run(probes()) == [True, False]
    assert call.count == 2


@pytest.mark.parametrize(("required", "status"), [(True, 503), (False, 200)])
def test_the_gateway_is_ready_without_what_it_does_not_require(required: bool, status: int) -> None:
    gone = {"model": Dependency(ScriptedProbe(ModelError("gone")), required=required)}

    async def probe() -> httpx2.Response:
        transport = httpx2.ASGITransport(
            app=build_fastapi(ServedProfiles(replace(scripted_graph(), dependencies=gone)))
        )
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/readyz")

    response = asyncio.run(probe())
    assert response.status_code == status
    check = {"ok": False, "required": required, "reason": "gone"}
    assert response.json() == {"ok": not required, "checks": {"model": check}}


class CancelledResponse:
    """A response of Serve's that ends as cancelled, though nobody here has cancelled it."""

    def __await__(self) -> Generator[Any, None, None]:
        raise asyncio.CancelledError
        yield

    def cancel(self) -> None:
        raise AssertionError("it has ended")


def test_a_deployment_whose_call_serve_cancels_is_unavailable_and_the_probe_continues() -> None:
    handle: Any = SimpleNamespace(check_health=SimpleNamespace(remote=CancelledResponse))
    ask = partial(model_connections._check_health, "generator", handle)
    status = run(Dependency(ask, required=False).status)
    assert status.reason == "the deployment of the generator is not healthy: CancelledError"


class Busy(CancelledResponse):
    """A response of a deployment whose queue is full."""

    def __await__(self) -> Generator[Any, None, None]:
        raise BackPressureError(num_queued_requests=2, max_queued_requests=2)
        yield


def test_a_deployment_whose_queue_is_full_is_only_busy() -> None:
    handle: Any = SimpleNamespace(check_health=SimpleNamespace(remote=Busy))
    ask = partial(model_connections._check_health, "generator", handle)
    assert run(Dependency(ask, required=False).status).ok


class Dying:
    """A store that takes a connection and dies."""

    def execute(self, *_: object) -> None:
        raise psycopg.errors.AdminShutdown("terminating connection")


def test_a_model_behind_an_open_breaker_is_not_there_but_the_gateway_is_ready() -> None:
    now = 0.0
    breaker = Breaker("the model of the generator", clock=lambda: now, jitter=lambda: 0.0)
    assert run(model_dependency(breaker).status) == DependencyStatus(ok=True, required=False, breaker="closed")
    for _ in range(5):
        with suppress(GenerationError), breaker.protect():
            raise GenerationError("no response")
    broken = run(model_dependency(breaker).status)
    assert (broken.ok, broken.required, broken.breaker) == (False, False, "open")
    assert broken.reason.startswith("the model of the generator failed 5 times in a row")
    now = 1.0
    assert run(model_dependency(breaker).status) == DependencyStatus(ok=True, required=False, breaker="half_open")


def test_a_store_that_fails_five_times_is_not_called_until_its_pause_is_over() -> None:
    now = 0.0
    breaker = Breaker("the store", clock=lambda: now, jitter=lambda: 0.0)
    reasons = [run(store_dependency(NOWHERE, breaker).status).reason for _ in range(6)]
    assert all("cannot reach the store" in reason for reason in reasons[:5])
    assert reasons[5] == "the store failed 5 times in a row; the next try is in 1.0 s"
    corpus = CorpusReader(NOWHERE, protect=breaker.protect)

    async def read() -> None:
        async with corpus.snapshot(Query(text="key", tenant="harbour1", collection="docs")):
            pass

    with pytest.raises(CircuitOpenError):
        asyncio.run(read())


def test_a_store_that_dies_under_the_probe_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Postgres, "_connect", lambda _: Dying())
    status = run(store_dependency(NOWHERE, Breaker("the store")).status)
    assert not status.ok
    assert "terminating connection" in status.reason
