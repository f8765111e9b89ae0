"""Callers of a gateway that requires API keys."""

import asyncio
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from rag_core.scopes import ROLES, SCOPES
from rag_core.storage.keys import KeyFinder, KeyParts, Keys, StoredKey
from rag_core.storage.postgres import Postgres
from serve.authentication.keys import KeyAuthenticator
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles
from tests.fakes.serving import scripted_graph

pytestmark = pytest.mark.postgres


@pytest.fixture
def gateway(postgres: Postgres) -> Iterator[TestClient]:
    graph = scripted_graph(postgres=postgres, authenticator=KeyAuthenticator(KeyFinder(postgres)))
    with TestClient(build_fastapi(ServedProfiles(graph)), base_url="http://localhost") as client:
        yield client


def create_key(postgres: Postgres, tenant: str, role: str) -> KeyParts:
    with postgres.connect() as connection:
        return Keys(connection, tenant).create(ROLES[role])


def test_a_request_without_a_key_is_refused_with_a_challenge(gateway: TestClient) -> None:
    response = gateway.get("/v1/collections")
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("token", ["garbage", "rk_", "rk_12345678_", "rk_12345678_secret", "rk_1234567/_x", "rk_ééé_x"])
def test_no_other_text_is_a_key(gateway: TestClient, token: str) -> None:
    response = gateway.get("/v1/collections", headers={"Authorization": f"Bearer {token}".encode()})
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'


def test_a_key_works_until_it_is_revoked(gateway: TestClient, postgres: Postgres) -> None:
    key = create_key(postgres, "acme", "reader")
    authorization = {"Authorization": f"Bearer {key.text}"}
    assert gateway.get("/v1/collections", headers=authorization).status_code == 200
    assert gateway.get("/v1/jobs", headers=authorization).status_code == 403
    with postgres.connect() as connection:
        Keys(connection, "acme").revoke(key.id)
    gateway.app.state.profiles.own.services.authenticator._cache.clear()
    assert gateway.get("/v1/collections", headers=authorization).status_code == 401


def test_requests_that_present_a_key_at_the_same_time_read_it_once(postgres: Postgres) -> None:
    key = create_key(postgres, "acme", "reader")

    class CountingFinder(KeyFinder):
        reads = 0

        async def find(self, id: str) -> StoredKey | None:
            self.reads += 1
            return await super().find(id)

    async def present() -> tuple[int, set[str]]:
        finder = CountingFinder(postgres)
        authenticator = KeyAuthenticator(finder)
        callers = await asyncio.gather(*(authenticator.authenticate(key.text) for _ in range(20)))
        await authenticator.close()
        return finder.reads, {caller.key_id for caller in callers}

    assert asyncio.run(present()) == (1, {key.id})


def test_the_operations_name_their_scopes(gateway: TestClient) -> None:
    operation = gateway.get("/openapi.json").json()["paths"]["/v1/jobs"]["get"]
    assert operation["security"] == [{"bearer": ["jobs:read"]}]
    probe = gateway.get("/openapi.json").json()["paths"]["/readyz"]["get"]
    assert probe["security"] == [{"bearer": []}, {}]
    scopes = {
        scope
        for path in gateway.get("/openapi.json").json()["paths"].values()
        for operation in path.values()
        for requirement in operation.get("security", [])
        for scope in requirement.get("bearer", [])
    }
    assert scopes <= SCOPES


def test_no_log_line_has_a_part_of_a_key(
    gateway: TestClient, postgres: Postgres, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG")
    key = create_key(postgres, "acme", "reader")
    wrong = KeyParts(key.id, KeyParts.generate().secret)
    for sent in (key, wrong, KeyParts.generate()):
        headers = {"Authorization": f"Bearer {sent.text}"}
        responses = [gateway.get(path, headers=headers) for path in ("/v1/collections", "/v1/jobs", "/readyz")]
        assert all(sent.secret not in response.text for response in responses)
    printed = caplog.text + "".join(capfd.readouterr())
    assert "collections" in printed
    assert key.secret not in printed
    assert wrong.secret not in printed
