"""The metadata of the gateway as a protected resource, and the challenges that name it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import httpx2
import pytest
from fakes.openid import AUDIENCE, CLAIMS, ISSUER, ScriptedProvider, jwt_settings, make_key
from fakes.serving import NOWHERE, scripted_graph

from rag_core.config import AuthSettings
from rag_core.scopes import SCOPES
from rag_core.storage import pools
from rag_core.storage.keys import KeyFinder
from serve.authentication.keys import KeyAuthenticator
from serve.authentication.mixed import MixedAuthenticator
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles

METADATA = "/.well-known/oauth-protected-resource"
Get = Callable[..., httpx2.Response]


def gateway(mode: Literal["none", "jwt", "both"], provider: ScriptedProvider | None = None, **jwt: Any) -> Get:
    """Sends GET requests to a gateway whose tokens `provider` signs."""
    auth = AuthSettings(mode=mode, jwt=jwt_settings(**jwt))
    tokens = (provider or ScriptedProvider([make_key().jwk])).authenticator()
    authenticator = MixedAuthenticator(KeyAuthenticator(KeyFinder(NOWHERE)), tokens)
    graph = scripted_graph(authenticator=authenticator if mode == "both" else tokens)
    graph = replace(graph, settings=graph.settings.model_copy(update={"auth": auth}))

    def get(path: str, token: str = "", **headers: str) -> httpx2.Response:
        async def send() -> httpx2.Response:
            transport = httpx2.ASGITransport(app=build_fastapi(ServedProfiles(graph)))
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:
                if token:
                    headers["Authorization"] = f"Bearer {token}"
                return await client.get(path, headers=headers)

        return asyncio.run(send())

    return get


@pytest.mark.parametrize("mode", ["jwt", "both"])
def test_the_metadata_names_the_provider_and_the_scopes(mode: Literal["jwt", "both"]) -> None:
    assert gateway(mode)(METADATA).json() == {
        "resource": "http://localhost:8000",
        "authorization_servers": [ISSUER],
        "scopes_supported": sorted(SCOPES),
        "bearer_methods_supported": ["header"],
    }


def test_the_configured_resource_replaces_the_host_of_the_request() -> None:
    get = gateway("jwt", resource=AUDIENCE)
    assert get(METADATA).json()["resource"] == AUDIENCE
    challenge = get("/v1/collections").headers["WWW-Authenticate"]
    assert challenge == f'Bearer resource_metadata="{AUDIENCE}{METADATA}"'


def test_a_gateway_without_a_provider_has_no_metadata() -> None:
    response = gateway("none")(METADATA)
    assert (response.status_code, response.json()["error_type"]) == (404, "not_found")


@pytest.mark.parametrize("mode", ["jwt", "both"])
@pytest.mark.parametrize("token", ["", "garbage", make_key("ES256", "forger").sign()])
def test_a_challenge_names_the_metadata(mode: Literal["jwt", "both"], token: str) -> None:
    response = gateway(mode)("/v1/profiles", token)
    assert response.status_code == 401
    reason = 'error="invalid_token", ' if token else ""  # RFC 6750 3.1: no error without credentials
    expected = f'Bearer {reason}resource_metadata="http://localhost:8000{METADATA}"'
    assert response.headers["WWW-Authenticate"] == expected


def test_a_host_that_is_not_allowed_is_in_no_challenge() -> None:
    response = gateway("jwt")("/v1/profiles", Host="evil.example")
    assert response.status_code == 421
    assert "WWW-Authenticate" not in response.headers


@pytest.mark.parametrize("mode", ["jwt", "both"])
def test_a_token_opens_the_routes_of_its_scopes(mode: Literal["jwt", "both"]) -> None:
    get, claims = gateway(mode), {**CLAIMS, "exp": 1 << 40}
    assert get("/v1/profiles", make_key().sign(claims)).status_code == 200
    refused = get("/v1/jobs", make_key().sign(claims))
    assert (refused.status_code, refused.json()["error_type"]) == (403, "scope")
    assert refused.headers["WWW-Authenticate"] == 'Bearer error="insufficient_scope", scope="jobs:read"'


def test_a_key_is_never_taken_for_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of this gateway cannot be reached, so only a key can fail because of it."""
    monkeypatch.setattr(pools, "CONNECTION_WAIT", 0.5)
    get = gateway("both")
    assert get("/v1/profiles", "rk_Ab12Cd34_secret").status_code == 503
    assert get("/v1/profiles", "rk.Ab12Cd34.secret").status_code == 401


def test_an_unreachable_provider_makes_the_gateway_unavailable_and_keeps_its_address() -> None:
    get = gateway("jwt", ScriptedProvider(failure=httpx2.ConnectError("cannot reach 10.0.0.7")))
    response = get("/v1/profiles", make_key().sign())
    assert response.status_code == 503
    assert response.headers["Retry-After"]
    assert "10.0.0.7" not in response.text


@pytest.mark.parametrize(
    "url", ["http://login.example.org", "ftp://login.example.org", "login.example.org", "", "https://", "file:///keys"]
)
def test_a_provider_needs_https(url: str) -> None:
    for setting in ("issuer", "jwks_url"):
        with pytest.raises(ValueError, match="must be a URL of https"):
            jwt_settings(**{setting: url})


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "127.1.2.3"])
def test_a_provider_on_loopback_can_use_http(host: str) -> None:
    assert jwt_settings(issuer=f"http://{host}:3000").issuer == f"http://{host}:3000"


def test_the_modes_with_tokens_require_a_provider() -> None:
    for mode in ("jwt", "both"):
        with pytest.raises(ValueError, match=f"mode {mode} requires auth.jwt"):
            AuthSettings.model_validate({"mode": mode})
