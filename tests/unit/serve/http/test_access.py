"""Hosts that are accepted, changes that a read-only gateway refuses, and the page of the routes."""

import asyncio
import re
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from fakes.serving import scripted_graph
from fastapi import FastAPI
from fastapi.routing import APIRoute

from serve.gateway import ROUTE_MODULES, build_fastapi
from serve.http.changes import READING_ROUTES
from serve.profiles import ServedProfiles
from serve.services import Services


def services(**api: Any) -> Services:
    graph = scripted_graph()
    settings = graph.settings.model_copy(update={"api": graph.settings.api.model_copy(update=api)})
    return replace(graph, settings=settings)


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """A gateway with two listed names."""
    return build_fastapi(ServedProfiles(services(hosts=("rag.example.org", "*.pages.example"))))


def request(method: str, path: str, graph: Services, **options: Any) -> httpx2.Response:
    return request_app(method, path, build_fastapi(ServedProfiles(graph)), **options)


def request_app(method: str, path: str, app: FastAPI, **options: Any) -> httpx2.Response:
    async def send() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **options)

    return asyncio.run(send())


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:8000", "localhost.", "rag.localhost", "127.0.0.1", "127.0.0.1:8000", "[::1]:8000"),
        *(
            "10.1.2.3:8000",
            "[fd00::7]",
            "rag.example.org",
            "RAG.example.org:443",
            "a.pages.example",
            "a.b.pages.example:1",
        ),
    ],
)
@pytest.mark.parametrize("path", ["/healthz", "/openapi.json"])
def test_a_loopback_name_an_address_and_a_listed_name_are_accepted(app: FastAPI, host: str, path: str) -> None:
    assert request_app("GET", path, app, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *(
            "evil.example",
            "evil.example:8000",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "notlocalhost",
            "pages.example",
        ),
        *(
            "rag.example.org.evil.example",
            "xpages.example",
            "evil@localhost",
            "localhost@evil",
            "localhost/evil",
            "[::1",
        ),
        *("localhost:8000:9", "localhost evil", "2130706433", "0x7f.1", "127.1", "[localhost]", ".", "*", "locälhost"),
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/collections"), ("POST", "/v1/retrieve"), ("GET", "/docs")])
def test_another_host_is_misdirected_so_that_no_rebound_name_is_the_same_origin(
    app: FastAPI, host: str, method: str, path: str
) -> None:
    response = request_app(method, path, app, headers={"Host": host.encode("latin-1")})
    problem = response.json()
    assert (response.status_code, problem["error_type"], problem["title"]) == (
        421,
        "misdirected",
        "Misdirected Request",
    )
    assert "Host must be an IP address, localhost or one of api.hosts, got " in problem["detail"]


def test_a_star_accepts_every_host() -> None:
    assert request("GET", "/healthz", services(hosts=("*",)), headers={"Host": "any.example"}).status_code == 200


def list_changes() -> list[tuple[str, str]]:
    """The method and the path of each route that is not safe and not listed as reading."""
    routes = [route for module in ROUTE_MODULES for route in module.router.routes if isinstance(route, APIRoute)]
    pairs = [(method, route.path) for route in routes for method in sorted(route.methods)]
    return [(method, path) for method, path in pairs if method not in ("GET", "HEAD") and path not in READING_ROUTES]


def test_the_changing_routes_are_these() -> None:
    assert sorted(list_changes()) == [
        ("DELETE", "/v1/documents/{id}"),
        ("POST", "/v1/ingest"),
        ("POST", "/v1/jobs/{id}/cancel"),
        ("POST", "/v1/jobs/{id}/retry"),
    ]


@pytest.mark.parametrize(("method", "path"), list_changes())
def test_a_read_only_gateway_refuses_every_change(method: str, path: str) -> None:
    filled = re.sub(r"\{\w+\}", "00000000-0000-5000-8000-000000000000", path)
    body = {"json": {"documents": [{"text": "Keys."}]}} if path == "/v1/ingest" else {}
    response = request(method, filled, services(read_only=True), **body)
    problem = response.json()
    assert (response.status_code, problem["error_type"], problem["title"]) == (403, "read_only", "Forbidden")
    assert "api.read_only" in problem["detail"]
    assert request(method, filled, services(), **body).status_code == 503  # it went on to the store, which is away


def test_a_read_only_gateway_answers_questions_and_lists_its_routes() -> None:
    graph = services(read_only=True)
    assert request("POST", "/v1/retrieve", graph, json={"query": "?"}).status_code == 200
    assert request("GET", "/v1/profiles", graph).status_code == 200
    assert request("POST", "/v1/vector_stores/default/search", graph, json={"query": "?"}).status_code == 200


def test_the_page_of_the_routes_loads_nothing_from_another_host() -> None:
    graph = services()
    page = request("GET", "/docs", graph)
    assert page.status_code == 200
    links = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert {link.partition("?")[0] for link in links} >= {
        "/docs/static/swagger-ui-bundle.js",
        "/docs/static/swagger-ui.css",
    }
    for link in links:
        response = request("GET", link, graph)
        assert (link[0], response.status_code) == ("/", 200)
    assert "//" not in page.text.replace("http://localhost", "").partition("<script>")[0].replace("<!", "")
    assert request("GET", "/redoc", graph).status_code == 404
