"""The scopes that depend on what a request says, and what is shown to callers without credentials."""

import asyncio
from collections import defaultdict
from dataclasses import replace
from itertools import product
from threading import BoundedSemaphore
from typing import Any
from uuid import UUID

import httpx2
import pytest
from fakes.serving import scripted_graph
from fastapi.routing import APIRoute
from gateways import run_with_gateway

from rag_core.errors import AuthenticationError, ScopeError
from rag_core.scopes import ROLES, Scope
from serve.authentication.caller import Caller
from serve.gateway import ROUTE_MODULES, build_fastapi
from serve.http.caller import identify_caller
from serve.http.policy import check_guard
from serve.profiles import ServedProfiles
from serve.routes import job_events
from serve.variants import GuardMode

READER = Caller(tenant="tenant-under-test", user="ann", scopes=ROLES["reader"])
WRITER = Caller(tenant="tenant-under-test", user="ann", scopes=ROLES["writer"])
QUESTION = [{"role": "user", "content": "keys"}]


def post(path: str, body: Any, who: Caller, guard: str = "block") -> httpx2.Response:
    graph = scripted_graph(guard=(guard, "after"))
    return run_with_gateway(graph, lambda client: client.post(path, json=body), who)


def missing_scope(response: httpx2.Response) -> str:
    """The scope that the challenge of a response with status 403 names."""
    assert response.status_code == 403, response.text
    return response.headers["WWW-Authenticate"].partition('scope="')[2].rstrip('"')


@pytest.mark.parametrize(
    ("requested", "configured"),
    [("off", "flag"), ("off", "block"), ("flag", "block"), ("flag", "regenerate"), ("off", "regenerate")],
)
def test_a_weaker_guard_needs_a_scope(requested: GuardMode, configured: GuardMode) -> None:
    with pytest.raises(ScopeError, match="policy:override"):
        check_guard(READER, requested, configured)
    check_guard(Caller(tenant="tenant-under-test", scopes=frozenset[Scope]({"policy:override"})), requested, configured)


@pytest.mark.parametrize(
    ("requested", "configured"),
    [
        (None, "block"),
        ("off", "off"),
        ("flag", "flag"),
        ("block", "flag"),
        ("block", "regenerate"),
        ("regenerate", "block"),
    ],
)
def test_an_equal_or_stronger_guard_needs_none(requested: GuardMode | None, configured: GuardMode) -> None:
    check_guard(READER, requested, configured)


@pytest.mark.parametrize(("requested", "configured"), [(None, "flag"), ("flag", "off"), ("off", "block")])
def test_a_named_profile_with_a_weaker_guard_needs_a_scope(requested: GuardMode | None, configured: GuardMode) -> None:
    with pytest.raises(ScopeError, match="policy:override"):
        check_guard(READER, requested, configured, replaced="block")
    check_guard(READER, "block", "flag", replaced="block")
    check_guard(READER, None, "block", replaced="flag")


def test_both_routes_for_answers_check_the_guard_of_a_named_profile() -> None:
    strict, lax = scripted_graph(guard=("block", "after")), scripted_graph(guard=("flag", "after"))
    settings = lax.settings.model_copy(update={"profile": "lax"})

    async def ask(path: str, body: Any) -> httpx2.Response:
        app = build_fastapi(ServedProfiles(strict, {"lax": settings}, lambda _: replace(lax, settings=settings)))
        app.dependency_overrides[identify_caller] = lambda: READER
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            return await client.post(path, json=body)

    for path, body in (
        ("/v1/answer", {"question": "keys", "profile": "lax"}),
        ("/v1/chat/completions", {"model": "default:lax", "messages": QUESTION}),
    ):
        assert missing_scope(asyncio.run(ask(path, body))) == "policy:override"


def test_both_routes_for_answers_check_the_guard() -> None:
    chat = {"model": "default", "messages": QUESTION, "rag": {"guard": "flag"}}
    for path, body in (("/v1/answer", {"question": "keys", "guard": "off"}), ("/v1/chat/completions", chat)):
        assert missing_scope(post(path, body, READER)) == "policy:override"


@pytest.mark.parametrize(
    "body",
    [
        {"source": {"type": "files", "locations": ["file:///srv/docs"]}},
        {"documents": [{"text": f"Key {number}."} for number in range(101)]},
    ],
)
def test_a_source_and_many_documents_need_the_scope_for_bulk_ingestion(body: Any) -> None:
    assert missing_scope(post("/v1/ingest", body, WRITER)) == "ingest:bulk"
    bulk = Caller(tenant=WRITER.tenant, scopes=WRITER.scopes | {"ingest:bulk"})
    assert post("/v1/ingest", body, bulk).json()["error_type"] in ("location", "store")  # it went on


def test_some_documents_need_no_scope_for_bulk_ingestion() -> None:
    body = {"documents": [{"text": f"Key {number}."} for number in range(100)]}
    assert post("/v1/ingest", body, WRITER).json()["error_type"] == "store"


class Locked:
    """An Authenticator that knows one token."""

    requires_credentials = True

    async def authenticate(self, token: str) -> Caller:
        if token != "known":  # noqa: S105
            raise AuthenticationError("the API key is not valid")
        return READER

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(("token", "members"), [("", {"ok"}), ("other", {"ok"}), ("known", {"ok", "checks"})])
def test_only_callers_with_credentials_see_what_the_gateway_depends_on(token: str, members: set[str]) -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    graph = scripted_graph(authenticator=Locked())
    response = run_with_gateway(graph, lambda client: client.get("/readyz", headers=headers))
    assert (response.status_code, response.json().keys()) == (200, members)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/docs"])
def test_probes_and_the_description_of_the_api_need_no_credentials(path: str) -> None:
    graph = scripted_graph(authenticator=Locked())
    assert run_with_gateway(graph, lambda client: client.get(path)).status_code == 200


PUBLIC = {"/healthz", "/readyz", "/.well-known/oauth-protected-resource"}
DOCS = {"/openapi.json", "/docs", "/docs/oauth2-redirect", "/docs/static"}
METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")
ALIASES = ("/query", "/v1/query", "/ingest", "/api/answer", f"/jobs/{UUID(int=1)}/events")


def test_no_route_is_missing_in_the_description_of_the_api() -> None:
    app = build_fastapi(ServedProfiles(scripted_graph()))
    routes = [route for module in ROUTE_MODULES for route in module.router.routes if isinstance(route, APIRoute)]
    assert len(routes) == sum(len(module.router.routes) for module in ROUTE_MODULES)
    assert all(route.include_in_schema for route in routes)
    assert {path for route in app.routes if (path := getattr(route, "path", ""))} == DOCS


def test_no_method_and_no_alias_of_a_route_works_without_credentials() -> None:
    app = build_fastapi(ServedProfiles(scripted_graph()))
    paths = [path.format_map(defaultdict(lambda: UUID(int=1))) for path in app.openapi()["paths"].keys() - PUBLIC]

    async def request_all(client: httpx2.AsyncClient) -> dict[tuple[str, str], int]:
        requests = product(METHODS, [*paths, *ALIASES])
        return {(method, path): (await client.request(method, path)).status_code for method, path in requests}

    statuses = run_with_gateway(scripted_graph(authenticator=Locked()), request_all)
    assert {request: status for request, status in statuses.items() if status not in (401, 405)} == {}
    assert {path for (_, path), status in statuses.items() if status == 401} == {*paths, *ALIASES}


def test_a_stranger_takes_no_place_of_those_who_watch_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.routes.job_events._watchers", BoundedSemaphore(1))
    path = f"/v1/jobs/{UUID(int=1)}/events"

    async def watch(client: httpx2.AsyncClient) -> int:
        return (await client.get(path)).status_code

    class Busy(Locked):
        async def authenticate(self, token: str) -> Caller:
            assert job_events._watchers.acquire(blocking=False)  # the only place is free
            return await super().authenticate(token)

    assert run_with_gateway(scripted_graph(authenticator=Busy()), watch) == 401
