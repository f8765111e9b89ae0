"""The keys of an OpenID provider: when they are read, how long they are used, and which are."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import httpx2
import pytest
from fakes.openid import ISSUER, ScriptedProvider, jwt_settings, make_key

from rag_core.errors import UnavailableError
from serve.authentication.signing_keys import FRESH_SECONDS, PAUSE, USABLE_SECONDS, SigningKeys

ONE, TWO = make_key(id="one"), make_key(id="two")


def run(provider: ScriptedProvider, work: Callable[[SigningKeys], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def run_and_close() -> None:
        keys = provider.keys(jwt_settings(**settings))
        await work(keys)
        await keys.close()

    asyncio.run(run_and_close())


def test_the_keys_are_read_once_by_the_configuration_of_the_issuer() -> None:
    provider = ScriptedProvider([ONE.jwk, TWO.jwk])

    async def work(keys: SigningKeys) -> None:
        for id in ("one", "two", "one"):
            key = await keys.find(id)
            assert key is not None
            assert key.key_id == id

    run(provider, work)
    assert provider.requests == ["/realm/.well-known/openid-configuration", "/jwks"]


def test_a_configured_url_needs_no_discovery() -> None:
    provider = ScriptedProvider([ONE.jwk])

    async def work(keys: SigningKeys) -> None:
        assert await keys.find("one")

    run(provider, work, jwks_url="https://keys.example.org/all")
    assert provider.requests == ["/all"]


def test_many_requests_share_one_read() -> None:
    provider = ScriptedProvider([ONE.jwk])

    async def work(keys: SigningKeys) -> None:
        signing_keys = await asyncio.gather(*(keys.find("one") for _ in range(50)))
        assert all(signing_keys)

    run(provider, work, jwks_url="https://keys.example.org/all")
    assert provider.requests == ["/all"]


def test_a_read_continues_if_the_first_client_disconnects() -> None:
    provider = ScriptedProvider([ONE.jwk])

    async def work(keys: SigningKeys) -> None:
        first = asyncio.create_task(keys.find("one"))
        second = asyncio.create_task(keys.find("one"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second

    run(provider, work)


def test_an_unknown_key_is_looked_for_at_most_once_a_minute() -> None:
    provider = ScriptedProvider([ONE.jwk])

    async def work(keys: SigningKeys) -> None:
        assert await keys.find("one")
        for second in range(180):
            provider.seconds = second
            assert await keys.find(f"unknown {second}") is None
        assert len(provider.requests) == 4  # the first read, and those at 0, 60 and 120

    run(provider, work, jwks_url="https://keys.example.org/all")


def test_a_new_key_works_at_once_and_one_that_was_removed_until_the_next_read() -> None:
    provider = ScriptedProvider([ONE.jwk])

    async def work(keys: SigningKeys) -> None:
        assert await keys.find("one")
        provider.jwks = [TWO.jwk]
        assert await keys.find("one")
        assert await keys.find("two")
        assert await keys.find("one") is None

    run(provider, work)


def test_a_second_new_key_within_a_minute_is_refused_until_the_minute_has_passed() -> None:
    """A limit that the documentation names: the gateway cannot tell a new key from an invented one."""
    provider = ScriptedProvider([ONE.jwk])

    async def work(keys: SigningKeys) -> None:
        assert await keys.find("one")
        assert await keys.find("invented") is None
        provider.jwks, provider.seconds = [TWO.jwk], PAUSE - 1
        assert await keys.find("two") is None
        provider.seconds = PAUSE
        assert await keys.find("two")

    run(provider, work)


def test_a_removed_key_works_for_ten_minutes_if_no_token_names_a_new_one() -> None:
    provider = ScriptedProvider([ONE.jwk, TWO.jwk])

    async def work(keys: SigningKeys) -> None:
        assert await keys.find("one")
        provider.jwks, provider.seconds = [TWO.jwk], FRESH_SECONDS
        assert await keys.find("one")
        provider.seconds += 1
        assert await keys.find("one") is None

    run(provider, work)


@pytest.mark.parametrize("failure", [500, 404, 302, httpx2.ConnectError("refused"), httpx2.ReadTimeout("slow")])
def test_keys_stay_usable_for_a_day_while_the_provider_is_down(
    failure: int | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    provider = ScriptedProvider([ONE.jwk])

    async def work(keys: SigningKeys) -> None:
        assert await keys.find("one")
        provider.failure = failure
        for hour in range(1, 25):
            provider.seconds = hour * 3600.0
            assert await keys.find("one")
        provider.seconds = USABLE_SECONDS + 1
        with pytest.raises(UnavailableError):
            await keys.find("one")
        provider.failure, provider.seconds = None, USABLE_SECONDS + 10
        assert await keys.find("one")

    with caplog.at_level(logging.WARNING):
        run(provider, work)
    assert f"cannot read the keys of the OpenID provider {ISSUER}" in caplog.text


def test_without_any_keys_the_provider_is_asked_again_every_five_seconds() -> None:
    provider = ScriptedProvider([ONE.jwk], failure=500)

    async def work(keys: SigningKeys) -> None:
        for second in range(10):
            provider.seconds = second
            with pytest.raises(UnavailableError):
                await keys.find("one")
        assert len(provider.requests) == 2
        provider.failure, provider.seconds = None, 10.0
        assert await keys.find("one")

    run(provider, work, jwks_url="https://keys.example.org/all")


@pytest.mark.parametrize(
    "configuration",
    [
        {"issuer": "https://evil.example", "jwks_uri": "https://login.example.org/jwks"},
        {"issuer": ISSUER, "jwks_uri": "http://login.example.org/jwks"},
        {"issuer": ISSUER, "jwks_uri": "file:///etc/keys"},
        {"issuer": ISSUER},
        {},
    ],
)
def test_a_configuration_with_another_issuer_or_an_insecure_url_is_not_used(configuration: dict[str, str]) -> None:
    provider = ScriptedProvider([ONE.jwk], configuration=configuration)

    async def work(keys: SigningKeys) -> None:
        with pytest.raises(UnavailableError):
            await keys.find("one")

    run(provider, work)
    assert provider.requests == ["/realm/.well-known/openid-configuration"]


SYMMETRIC = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA", "kid": "one"}


@pytest.mark.parametrize(
    "jwk",
    [
        SYMMETRIC,
        {**SYMMETRIC, "alg": "HS256"},
        {**SYMMETRIC, "alg": "ES256"},
        {**ONE.jwk, "use": "enc"},
        {**ONE.jwk, "alg": "HS256"},
        {**ONE.jwk, "alg": "none"},
        {**ONE.jwk, "alg": 7},
        {**ONE.jwk, "alg": {}},
        {**ONE.jwk, "kty": {}},
        ONE.private_jwk,
        {**ONE.jwk, "x": "AAAA"},
        {**ONE.jwk, "crv": "P-384"},
        {**ONE.jwk, "alg": "RS256"},
        {"kty": "future", "kid": "one"},
        {},
    ],
)
def test_only_public_signature_keys_are_used(jwk: dict[str, Any]) -> None:
    provider = ScriptedProvider([jwk, TWO.jwk])

    async def work(keys: SigningKeys) -> None:
        assert await keys.find("one") is None
        assert await keys.find("two")

    run(provider, work)


def test_a_short_rsa_key_is_not_used() -> None:
    provider = ScriptedProvider([make_key("RS256", bits=1024).jwk, TWO.jwk])

    async def work(keys: SigningKeys) -> None:
        assert await keys.find("one") is None

    run(provider, work)


@pytest.mark.parametrize("jwks", [[], [SYMMETRIC], [ONE.jwk] * 101, [{**ONE.jwk, "x5c": ["A" * 300_000]}], [7]])
def test_a_document_without_usable_keys_or_a_huge_one_replaces_no_keys(jwks: list[Any]) -> None:
    provider = ScriptedProvider([ONE.jwk])

    async def work(keys: SigningKeys) -> None:
        assert await keys.find("one")
        provider.jwks, provider.seconds = jwks, FRESH_SECONDS + 1
        assert await keys.find("one")

    run(provider, work)


def test_a_token_without_a_key_id_is_checked_with_the_only_key() -> None:
    provider = ScriptedProvider([ONE.jwk])

    async def work(keys: SigningKeys) -> None:
        assert await keys.find("")
        provider.jwks, provider.seconds = [ONE.jwk, TWO.jwk], FRESH_SECONDS + 1
        assert await keys.find("") is None

    run(provider, work)
