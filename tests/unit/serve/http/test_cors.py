"""Web pages of other origins: those of `api.cors_origins` can call the gateway, all others cannot."""

from dataclasses import replace
from typing import Any

import httpx2
import pytest
from fakes.serving import scripted_graph
from gateways import run_with_gateway
from pydantic import ValidationError

from rag_core.config import ApiSettings
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles

PAGE, STRANGER = "https://app.example.org", "https://evil.example"


def request(
    method: str, path: str, origin: str, *, origins: tuple[str, ...] = (PAGE,), **options: Any
) -> httpx2.Response:
    graph = scripted_graph()
    api = ApiSettings(cors_origins=origins)
    services = replace(graph, settings=graph.settings.model_copy(update={"api": api}))
    headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site", **options.pop("headers", {})}
    return run_with_gateway(services, lambda client: client.request(method, path, headers=headers, **options))


def preflight(origin: str, origins: tuple[str, ...] = (PAGE,)) -> httpx2.Response:
    headers = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
    }
    return request("OPTIONS", "/v1/answer", origin, origins=origins, headers=headers)


def test_a_preflight_of_an_allowed_page_is_granted_without_cookies() -> None:
    response = preflight(PAGE)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == PAGE
    assert response.headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-os"
    assert "access-control-allow-credentials" not in response.headers


def test_a_preflight_grants_the_methods_of_all_routes() -> None:
    paths = build_fastapi(ServedProfiles(scripted_graph())).openapi()["paths"]
    methods = {method.upper() for operations in paths.values() for method in operations}
    assert set(preflight(PAGE).headers["access-control-allow-methods"].split(", ")) == methods


@pytest.mark.parametrize("origin", [STRANGER, f"{PAGE}.evil.example", f"{PAGE}:8443", "http://app.example.org", "null"])
def test_another_page_gets_neither_a_preflight_nor_a_response_that_it_can_read(origin: str) -> None:
    response = preflight(origin)
    assert (response.status_code, "access-control-allow-origin" in response.headers) == (400, False)
    read = request("GET", "/v1/profiles", origin)
    assert "access-control-allow-origin" not in read.headers
    written = request("POST", "/v1/retrieve", origin, json={"query": "keys"})
    assert (written.status_code, written.json()["error_type"]) == (403, "cross_site")


def test_an_allowed_page_reads_answers_errors_and_the_headers_of_both() -> None:
    answer = request("POST", "/v1/retrieve", PAGE, json={"query": "keys"})
    broken = request("POST", "/v1/retrieve", PAGE, json={})
    assert (answer.status_code, broken.status_code) == (200, 422)
    for response in (answer, broken):
        assert response.headers["access-control-allow-origin"] == PAGE
        assert "X-Correlation-ID" in response.headers["access-control-expose-headers"]
        assert response.headers["vary"] == "Origin"


def test_without_origins_no_response_mentions_them() -> None:
    response = request("GET", "/v1/profiles", PAGE, origins=())
    assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "origin", ["*", "https://*.example.org", "app.example.org", f"{PAGE}/", f"{PAGE}/a", "null", ""]
)
def test_an_origin_is_a_scheme_and_a_host(origin: str) -> None:
    with pytest.raises(ValidationError):
        ApiSettings(cors_origins=(origin,))
