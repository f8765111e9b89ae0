"""Access tokens of a real OpenID provider: npm's oidc-provider, on loopback."""

import base64
import json
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from threading import Condition
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fakes.serving import scripted_graph, serve_graph
from gateways import build_services
from trees import hashing_settings, ingest, write

from rag_core.config import JwtSettings
from rag_core.scopes import ROLES
from rag_core.storage.keys import Keys
from rag_core.storage.postgres import Postgres
from serve.authentication.jwt import JwtAuthenticator
from serve.authentication.signing_keys import PAUSE, SigningKeys

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FOLDER = Path(__file__).parents[1] / "oidc"
AUDIENCE = "https://rag.example.org"
ALGORITHMS = ("RS256", "ES256", "EdDSA")
CLIENTS, ROTATIONS, REQUESTS_BETWEEN = 8, 9, 5


@dataclass(frozen=True, slots=True)
class Provider:
    """The running provider, and an HTTP client for its requests."""

    url: str
    http: httpx2.Client

    def rotate(self, algorithm: str) -> str:
        """Signs with a new key from now on, and returns the key's id."""
        return self.http.put(f"{self.url}/control/keys", params={"alg": algorithm}).text

    def issue(self, client: str = "ferry", **parameters: str) -> str:
        """An access token by client credentials, by default for this gateway."""
        form = {"grant_type": "client_credentials", "resource": AUDIENCE, "scope": "retrieve:read", **parameters}
        form = {name: value for name, value in form.items() if value}
        response = self.http.post(f"{self.url}/token", data=form, auth=(client, "secret"))
        return str(response.raise_for_status().json()["access_token"])


@dataclass(slots=True)
class Gateway:
    """A gateway that reads the provider's keys. `seconds` is the time by which it decides when to read them again."""

    http: httpx2.Client
    url: str = ""
    seconds: float = 0.0

    def ask(self, token: str) -> httpx2.Response:
        return self.http.get(f"{self.url}/v1/profiles", headers={"Authorization": f"Bearer {token}"})


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    install_provider()
    with (
        subprocess.Popen(["node", "provider.mjs"], cwd=FOLDER, stdout=subprocess.PIPE, text=True) as process,
        httpx2.Client(timeout=60) as http,
    ):
        assert process.stdout is not None
        try:
            yield Provider(find_url(process.stdout), http)
        finally:
            process.terminate()


def install_provider() -> None:
    """Skips the test where npm cannot install the provider: without Node.js or without a network."""
    if (FOLDER / "node_modules").exists():
        return
    try:
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(command, cwd=FOLDER, check=True, capture_output=True, timeout=240)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"npm cannot install oidc-provider: {error}")


def find_url(lines: Iterable[str]) -> str:
    """The URL that the provider prints after its warnings."""
    return next(line.strip() for line in lines if line.startswith("http"))


@pytest.fixture
def gateway(provider: Provider) -> Iterator[Gateway]:
    settings, gateway = JwtSettings(issuer=provider.url, audience=AUDIENCE), Gateway(provider.http)
    keys = SigningKeys(settings, clock=lambda: gateway.seconds)
    with serve_graph(scripted_graph(authenticator=JwtAuthenticator(settings, keys))) as gateway.url:
        yield gateway


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_client_credentials_opens_the_routes_of_its_scopes(
    provider: Provider, gateway: Gateway, algorithm: str
) -> None:
    provider.rotate(algorithm)
    token = provider.issue()
    assert jwt.get_unverified_header(token)["alg"] == algorithm
    assert gateway.ask(token).status_code == 200
    refused = gateway.ask(provider.issue(scope="chat:write"))
    assert (refused.status_code, refused.json()["error_type"]) == (403, "scope")


@pytest.mark.postgres
def test_keys_and_tokens_each_find_the_documents_of_their_tenant(
    provider: Provider, store: Postgres, tmp_path: Path
) -> None:
    for tenant in ("acme-corp", "other-corp"):
        folder = write(tmp_path / tenant, {"dive.md": f"A dive of {tenant} lasts 45 minutes."})
        ingest(store, folder, settings=hashing_settings(f"tenant={tenant}"))
    with store.connect() as connection:
        key = Keys(connection, "other-corp").create(ROLES["reader"])
    jwt_settings = json.dumps({"issuer": provider.url, "audience": AUDIENCE})
    settings = hashing_settings(f"store.url={store.dsn}", f"auth={{mode: both, jwt: {jwt_settings}}}")

    def find_texts(token: str) -> list[str]:
        authorization = {"Authorization": f"Bearer {token}"}
        query = {"query": "How long may a dive last?"}
        response = provider.http.post(f"{url}/v1/retrieve", headers=authorization, json=query)
        return [hit["text"] for hit in response.raise_for_status().json()["results"]]

    with serve_graph(build_services(settings)) as url:
        assert find_texts(provider.issue()) == ["A dive of acme-corp lasts 45 minutes."]
        assert find_texts(key.text) == ["A dive of other-corp lasts 45 minutes."]
        metadata = provider.http.get(f"{url}/.well-known/oauth-protected-resource").json()
    assert metadata["authorization_servers"] == [provider.url]


@dataclass
class Load:
    """Clients that ask the gateway all the time, each time with a new token, until `finished`."""

    provider: Provider
    gateway: Gateway
    counts: list[int] = field(default_factory=lambda: [0] * CLIENTS)
    key_ids: set[str] = field(default_factory=set)
    refusals: list[str] = field(default_factory=list)
    finished: bool = False
    changed: Condition = field(default_factory=Condition)

    def ask(self, client: int) -> None:
        while not self.finished:
            token = self.provider.issue()
            response = self.gateway.ask(token)
            with self.changed:
                self.counts[client] += 1
                self.key_ids.add(jwt.get_unverified_header(token)["kid"])
                if response.status_code != 200:
                    self.refusals.append(response.text)
                self.changed.notify()

    def wait_for_all(self) -> None:
        """Waits until each client has asked some times more."""
        with self.changed:
            goals = [count + REQUESTS_BETWEEN for count in self.counts]
            assert self.changed.wait_for(
                lambda: all(count >= goal for count, goal in zip(self.counts, goals, strict=True)), timeout=120
            )


def test_no_request_fails_while_the_provider_rotates_its_keys(provider: Provider, gateway: Gateway) -> None:
    """The new key is used as soon as it is published, so that the gateway meets tokens of keys that it never read."""
    load, ids = Load(provider, gateway), set()
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(load.ask, client) for client in range(CLIENTS)]
        try:
            for rotation in range(ROTATIONS):
                load.wait_for_all()
                gateway.seconds += PAUSE
                ids.add(provider.rotate(ALGORITHMS[rotation % len(ALGORITHMS)]))
            load.wait_for_all()
        finally:
            load.finished = True
        for client in clients:
            client.result()

    print(f"{sum(load.counts)} requests, {ROTATIONS} rotations, {len(load.refusals)} failed requests")
    assert ids <= load.key_ids
    assert load.refusals == []


def encode_part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_other_tokens_with_the_providers_claims_are_refused(provider: Provider, gateway: Gateway) -> None:
    provider.rotate("RS256")
    token = provider.issue()
    header, payload, signature = token.split(".")
    key = jwt.PyJWKClient(f"{provider.url}/jwks").get_signing_key_from_jwt(token).key
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    id = jwt.get_unverified_header(token)["kid"]
    confused = f"{encode_part({'alg': 'HS256', 'kid': id})}.{payload}"
    mac = jwt.get_algorithm_by_name("HS256").sign(confused.encode(), pem)  # type: ignore[attr-defined]
    claims = jwt.decode(token, options={"verify_signature": False})
    tokens = {
        "must be signed by": f"{encode_part({'alg': 'none', 'kid': id})}.{payload}.",
        "must be signed by RS256": f"{confused}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}",
        "signature": f"{header}.{encode_part({**claims, 'tenant_id': 'other-corp'})}.{signature}",
        "another audience": provider.issue(resource="https://other.example.org"),
        "not a JSON web token": provider.issue(resource=""),  # opaque: it is meant for the provider itself
        "must have the claim tenant_id": provider.issue("adrift"),
    }
    for reason, refused in tokens.items():
        response = gateway.ask(refused)
        assert response.status_code == 401
        assert reason in response.json()["detail"]
    assert gateway.ask(token).status_code == 200


@pytest.mark.parametrize(
    ("ahead", "status"),
    [(-60, 401), (-20, 200), (0, 200), (310, 200), (400, 401)],
)
def test_a_token_of_five_minutes_is_accepted_if_the_clocks_differ_by_less_than_the_leeway(
    provider: Provider, gateway: Gateway, monkeypatch: pytest.MonkeyPatch, ahead: int, status: int
) -> None:
    """The gateway's clock is `ahead` of the provider's."""
    token = provider.issue()

    class AheadTime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(seconds=ahead)

    monkeypatch.setattr("jwt.api_jwt.datetime", AheadTime)
    assert gateway.ask(token).status_code == status
