"""The order of the gateway's checks, and what every response has, whoever wrote it."""

import asyncio

import httpx2
import pytest
from fakes.serving import scripted_graph

from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles

TOO_LARGE = {"Content-Length": str(2 << 20), "Content-Type": "application/json"}
OTHER_VERSION = {"Accept": "application/vnd.medkg.orchestration.v9+json"}
FOREIGN = {"Origin": "https://elsewhere.example"}


def request(method: str, path: str, headers: dict[str, str], content: bytes = b"") -> httpx2.Response:
    async def send() -> httpx2.Response:
        transport = httpx2.ASGITransport(
            app=build_fastapi(ServedProfiles(scripted_graph())), raise_app_exceptions=False
        )
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, headers=headers, content=content)

    return asyncio.run(send())


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/retrieve?a=%00", TOO_LARGE | OTHER_VERSION | FOREIGN, 413),
        ("/v1/retrieve?a=%00", OTHER_VERSION | FOREIGN, 422),
        ("/v1/retrieve", OTHER_VERSION | FOREIGN, 406),
        ("/v1/retrieve", FOREIGN, 403),
        ("/nowhere", FOREIGN, 403),
        ("/nowhere", {}, 404),
    ],
)
def test_size_is_checked_first_then_nul_then_the_version_then_the_origin(
    path: str, headers: dict[str, str], status: int
) -> None:
    response = request("POST", path, headers)
    assert response.status_code == status
    assert response.json()["status"] == status
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("headers", [TOO_LARGE, OTHER_VERSION, FOREIGN, {}])
def test_a_refused_request_has_the_headers_of_every_other(headers: dict[str, str]) -> None:
    response = request("POST", "/v1/retrieve", headers | {"X-Request-ID": "mine"})
    assert response.headers["x-request-id"] == "mine"
    assert response.headers["x-correlation-id"] == response.json()["correlation_id"]
    assert response.headers["x-api-version"] == "1.0"
    assert response.headers["x-pipeline-version"] == "sections-200:all-MiniLM-L6-v2:pgvector:none"
    assert "total;dur=" in response.headers["server-timing"]


def test_a_body_without_a_length_is_refused_where_it_exceeds_the_limit() -> None:
    async def parts() -> object:
        for _ in range(3):
            yield b" " * (512 << 10)

    async def send() -> httpx2.Response:
        transport = httpx2.ASGITransport(
            app=build_fastapi(ServedProfiles(scripted_graph())), raise_app_exceptions=False
        )
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            headers = {"Content-Type": "application/json"}
            return await client.post("/v1/retrieve", headers=headers, content=parts())

    response = asyncio.run(send())
    assert response.status_code == 413
    assert response.json()["detail"] == "the request body is too large: the limit for this path is 1048576 bytes"


def test_a_response_to_a_client_of_the_vendor_type_has_that_type() -> None:
    accept = {"Accept": "application/vnd.medkg.orchestration.v1+json"}
    assert request("GET", "/openapi.json", accept).headers["content-type"] == accept["Accept"]
    assert request("GET", "/openapi.json", {}).headers["content-type"] == "application/json"
