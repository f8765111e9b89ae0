"""Limits of requests by tenant and user: what is charged, and what the responses say."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import httpx2
import pytest
import yaml
from documents import ROOT, read_blocks
from fakes.answering import ScriptedGenerator
from fakes.serving import RecordingRetriever, scripted_graph
from gateways import run_with_gateway

from rag_core.config import AuthSettings, RateKind, RateLimitSettings
from rag_core.errors import CircuitOpenError, RagError, StoreError
from rag_core.events import Usage, ignore_event
from rag_core.storage.rate_limits import Balance, Charge
from rag_core.types import Query
from serve.authentication.caller import Caller
from serve.http.rate_limits import MeteredAnswerer, Use, list_charges
from serve.services import Services

ADA = Caller(tenant="harbour-team", user="ada")
SEARCH = {"query": "Where is the key?"}


@dataclass
class ScriptedLimiter:
    """A rate limiter that keeps the charges, and returns these balances."""

    balances: Sequence[Balance] = ()
    error: RagError | None = None
    charges: list[Charge] = field(default_factory=list)

    async def charge(self, tenant: str, charges: Sequence[Charge]) -> Sequence[Balance]:
        assert tenant == ADA.tenant
        if self.error:
            raise self.error
        self.charges += charges
        return self.balances or [Balance(9, 0)] * len(charges)

    async def close(self) -> None:
        pass


def graph(limiter: ScriptedLimiter, mode: str = "keys", **limits: Any) -> Services:
    scripted = scripted_graph(RecordingRetriever(hits=[]), ScriptedGenerator(answers=[]))
    auth, rate_limits = AuthSettings.model_validate({"mode": mode}), RateLimitSettings.model_validate(limits)
    settings = scripted.settings.model_copy(update={"auth": auth, "rate_limits": rate_limits})
    return replace(scripted, settings=settings, rate_limiter=limiter)  # type: ignore[arg-type]


def post(services: Services, path: str, body: object, who: Caller = ADA) -> httpx2.Response:
    async def send(client: httpx2.AsyncClient) -> httpx2.Response:
        return await client.post(path, json=body)

    return run_with_gateway(services, send, who)


def test_a_search_is_charged_to_its_tenant_and_its_user_and_the_headers_have_what_is_left() -> None:
    limiter = ScriptedLimiter([Balance(98.7, 0), Balance(40, 0)])
    response = post(graph(limiter), "/v1/retrieve", SEARCH)
    assert response.status_code == 200
    assert [(charge.kind, charge.user, charge.per_minute) for charge in limiter.charges] == [
        ("searches", "", 1_000),
        ("searches", "ada", 500),
    ]
    assert response.headers["RateLimit-Policy"] == '"searches";q=1000;w=60, "user-searches";q=500;w=60'
    assert response.headers["RateLimit"] == '"searches";r=98;t=1, "user-searches";r=40;t=8'


def test_a_refusal_is_a_problem_that_says_when_to_come_back_and_nothing_was_searched() -> None:
    services = graph(ScriptedLimiter([Balance(3, 0), Balance(0.2, 1.2)]))
    response = post(services, "/v1/vector_stores/default/search", SEARCH)
    problem = response.json()
    assert (response.status_code, response.headers["Retry-After"]) == (429, "2")
    assert response.headers["RateLimit"] == '"searches";r=3;t=6, "user-searches";r=0;t=12'
    assert (problem["error_type"], problem["retryable"], problem["recovery"]) == ("rate_limited", True, ["retry_after"])
    assert problem["detail"] == "a user can use at most 500 searches a minute; send the request again in 2 s"
    assert services.retriever.queries == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/answer", {"question": "Where?"}),
        ("/v1/chat/completions", {"model": "default", "messages": [{"role": "user", "content": "Where?"}]}),
    ],
)
def test_an_answer_is_charged_as_one_and_needs_room_for_a_token(path: str, body: object) -> None:
    limiter = ScriptedLimiter()
    post(graph(limiter), path, body)
    assert [(charge.kind, charge.cost, charge.need) for charge in limiter.charges if not charge.user] == [
        ("answers", 1, 1),
        ("tokens", 0, 1),
    ]


def test_a_gateway_without_callers_has_no_limits_unless_they_are_enabled() -> None:
    anybody, limiter = Caller(tenant=ADA.tenant), ScriptedLimiter()
    response = post(graph(limiter, "none"), "/v1/retrieve", SEARCH, anybody)
    assert (limiter.charges, "RateLimit" in response.headers) == ([], False)
    post(graph(limiter, "none", enabled=True), "/v1/retrieve", SEARCH, anybody)
    assert [(charge.kind, charge.user) for charge in limiter.charges] == [("searches", "")]
    post(graph(limiter, enabled=False), "/v1/retrieve", SEARCH)
    assert len(limiter.charges) == 1


def test_a_search_without_the_store_is_unavailable() -> None:
    assert post(graph(ScriptedLimiter(error=StoreError("gone"))), "/v1/retrieve", SEARCH).status_code == 503


def test_limits_of_a_single_tenant_replace_those_of_all_and_zero_is_no_limit() -> None:
    tenants = {ADA.tenant: {"tenant": {"searches": 5_000}, "user": {"searches": 0}}}
    settings = graph(ScriptedLimiter(), tenants=tenants).settings
    (charge,) = list_charges(settings, ADA, [Use("searches", 1)])
    assert (charge.user, charge.per_minute, charge.burst) == ("", 5_000, 100)
    assert len(list_charges(settings, replace(ADA, tenant="another-team"), [Use("searches", 1)])) == 2


def test_more_documents_than_the_burst_need_an_unused_bucket_and_a_small_limit_is_its_own_burst() -> None:
    charge, small = Use("documents", 700).charge(500, 100, ""), Use("searches", 1).charge(5, 100, "ada")
    assert (charge.cost, charge.need, charge.burst, small.burst) == (700, 100, 100, 5)


@dataclass
class AnswererOfTokens:
    error: StoreError | None = None

    async def answer(self, query: Query, emit: Any) -> Any:
        await emit(Usage(100, 20))
        await emit(Usage(30, 4))
        if self.error:
            raise self.error
        return query


@pytest.mark.parametrize("error", [None, StoreError("broken")])
def test_the_tokens_of_an_answer_are_charged_even_if_it_fails(error: StoreError | None) -> None:
    limiter = ScriptedLimiter()
    metered = MeteredAnswerer(AnswererOfTokens(error), graph(limiter), ADA)  # type: ignore[arg-type]
    answer = metered.answer(Query(text="?", tenant=ADA.tenant), ignore_event)
    if error:
        with pytest.raises(StoreError):
            asyncio.run(answer)
    else:
        asyncio.run(answer)
    assert [(charge.kind, charge.user, charge.cost) for charge in limiter.charges] == [
        ("tokens", "", 154),
        ("tokens", "ada", 154),
    ]


@pytest.mark.parametrize("error", [StoreError("gone"), CircuitOpenError("gone for a while")])
def test_an_answer_is_returned_even_if_its_tokens_cannot_be_charged(error: RagError) -> None:
    services = graph(ScriptedLimiter(error=error))
    query = Query(text="?", tenant=ADA.tenant)
    assert asyncio.run(MeteredAnswerer(AnswererOfTokens(), services, ADA).answer(query)) is query  # type: ignore[arg-type, comparison-overlap]


def test_the_page_on_limits_has_valid_settings_and_shows_the_defaults() -> None:
    page = (ROOT / "docs" / "how-to" / "limits.md").read_text()
    (block,) = [block for block in read_blocks(page) if block.language == "yaml"]
    limits = RateLimitSettings.model_validate(yaml.safe_load(block.text)["rate_limits"])
    assert (limits.tenant_rate("harbour-team", "searches"), limits.user_rate("other-team", "searches")) == (5_000, 100)
    rows = re.findall(r"^\| `(\w+)`.*? \| (.+) \| (.+) \|$", page, re.MULTILINE)
    assert {row[0] for row in rows} == set(get_args(RateKind))
    documented = {
        name: [int(rate.replace(",", "").replace("no limit", "0")) for rate in rates] for name, *rates in rows
    }
    defaults = RateLimitSettings()
    assert documented == {
        kind: [getattr(defaults.tenant, kind), getattr(defaults.user, kind)] for kind in get_args(RateKind)
    }
