"""Access tokens: which are accepted, which caller they describe, and why all others are refused."""

import asyncio
import base64
import json
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any

import jwt
import pytest
from fakes.openid import AUDIENCE, CLAIMS, ISSUER, NOW, ScriptedProvider, SigningKey, jwt_settings, make_key
from hypothesis import given
from hypothesis import strategies as st

from rag_core.errors import AuthenticationError, UnavailableError
from rag_core.scopes import ROLES, SCOPES
from serve.authentication.caller import Caller
from serve.bodies.conversations import Invitation


class FixedTime(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.fromtimestamp(NOW, tz)


@pytest.fixture(autouse=True)
def _fix_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jwt.api_jwt.datetime", FixedTime)


def authenticate(token: str, key: SigningKey | None = None, **settings: Any) -> Caller:
    provider = ScriptedProvider([(key or make_key()).jwk])
    return asyncio.run(provider.authenticator(jwt_settings(**settings)).authenticate(token))


def refuse(token: str, key: SigningKey | None = None, **settings: Any) -> str:
    with pytest.raises(AuthenticationError) as refusal:
        authenticate(token, key, **settings)
    return str(refusal.value)


def sign(**claims: Any) -> str:
    """A valid token with other claims; None leaves a claim out."""
    merged = {**CLAIMS, **claims}
    return make_key().sign({name: value for name, value in merged.items() if value is not None})


def encode_part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_token_names_the_tenant_the_user_the_groups_and_the_scopes(algorithm: str) -> None:
    key = make_key(algorithm)
    assert authenticate(key.sign(), key) == Caller(
        tenant="acme-corp",
        user="jwt:anna",
        groups=("staff", "harbour masters"),
        scopes=frozenset({"retrieve:read", "chat:write"}),
        key_id="",
    )


def test_the_user_with_the_longest_name_can_be_named_as_a_participant() -> None:
    user = authenticate(sign(sub="a" * 255)).user
    assert Invitation(users=[user]).users == [user]


def test_a_key_without_alg_has_the_usual_algorithm_of_its_type() -> None:
    key = make_key("RS256")
    provider = ScriptedProvider([{name: value for name, value in key.jwk.items() if name not in ("alg", "use")}])
    assert asyncio.run(provider.authenticator().authenticate(key.sign())).user == "jwt:anna"


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": None}, set()),
        ({"scope": None, "scp": ["retrieve:read", "profile"]}, {"retrieve:read"}),
        ({"scope": None, "scp": "retrieve:read  jobs:read"}, {"retrieve:read", "jobs:read"}),
        ({"scope": "admin2 ADMIN retrieve:*", "scp": [None, 1, {"admin": 1}]}, set()),
        ({"scope": " ".join(["openid"] * 500 + ["admin"])}, {"admin"}),
        ({"scope": 7, "scp": {"admin": True}}, set()),
    ],
)
def test_scopes_are_read_from_scope_and_scp_and_unknown_ones_are_ignored(
    claims: Mapping[str, Any], scopes: set[str]
) -> None:
    assert authenticate(sign(**claims)).scopes == scopes


def test_roles_add_their_scopes_if_a_claim_is_configured_for_them() -> None:
    token = sign(scope="jobs:read", roles=["reader", "superuser"])
    assert authenticate(token).scopes == {"jobs:read"}
    assert authenticate(token, roles_claim="roles").scopes == ROLES["reader"] | {"jobs:read"}
    assert authenticate(sign(roles="admin"), roles_claim="roles").scopes == SCOPES


def test_claims_can_have_other_names() -> None:
    token = sign(**{"https://rag/tenant": "other-tenant", "email": "anna@example.org", "https://rag/groups": "staff"})
    claims = {"tenant_claim": "https://rag/tenant", "user_claim": "email", "groups_claim": "https://rag/groups"}
    caller = authenticate(token, **claims)
    assert (caller.tenant, caller.user, caller.groups) == ("other-tenant", "jwt:anna@example.org", ("staff",))


def test_no_token_is_of_the_user_of_a_key() -> None:
    assert authenticate(sign(sub="key:Ab12Cd34")).user == "jwt:key:Ab12Cd34"


def test_one_of_several_audiences_is_enough() -> None:
    assert authenticate(sign(aud=["https://other.example.org", AUDIENCE])).user == "jwt:anna"


def test_a_token_without_groups_has_none() -> None:
    assert authenticate(sign(groups=None)).groups == ()


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": None}, "lacks the claim exp"),
        ({"iss": None}, "lacks the claim iss"),
        ({"aud": None}, "lacks the claim aud"),
        ({"sub": None}, "lacks the claim sub"),
        ({"iss": "https://login.example.org"}, "another issuer"),
        ({"iss": f"{ISSUER}/"}, "another issuer"),
        ({"aud": "https://other.example.org"}, "another audience"),
        ({"aud": []}, "lacks the claim aud"),
        ({"aud": f"{AUDIENCE}/"}, "another audience"),
        ({"exp": "soon"}, "not valid"),
        ({"sub": 7}, "not valid"),
        ({"tenant_id": None}, "must have the claim tenant_id with one value"),
        ({"tenant_id": ["acme-corp", "other-corp"]}, "must have the claim tenant_id with one value"),
        ({"tenant_id": "acme"}, "must be a tenant"),
        ({"tenant_id": "ACME-CORP"}, "must be a tenant"),
        ({"tenant_id": "acme-corp "}, "must be a tenant"),
        ({"tenant_id": "acme-corp\n"}, "must be names"),
        ({"tenant_id": 12345678}, "must be a list"),
        ({"sub": ""}, "must have the claim sub with one value"),
        ({"sub": "a" * 256}, "must be names of at most 255 characters"),
        ({"sub": "an\0na"}, "must be names"),
        ({"sub": "an\ud800na"}, "must be names"),
        ({"groups": {"staff": True}}, "must be a list of at most 1000 names"),
        ({"groups": ["staff", 7]}, "must be names"),
        ({"groups": ["g"] * 1001}, "must be a list of at most 1000 names"),
    ],
)
def test_a_token_with_other_claims_is_refused(claims: Mapping[str, Any], reason: str) -> None:
    assert reason in refuse(sign(**claims))


@pytest.mark.parametrize("leeway", [0, 30])
def test_clocks_can_differ_by_the_leeway_and_no_second_more(leeway: int) -> None:
    accepted = {"exp": NOW - leeway + 1, "nbf": NOW + leeway, "iat": NOW + leeway}
    for claim, time in accepted.items():
        assert authenticate(sign(**{claim: time}), leeway_s=leeway).user == "jwt:anna"
    assert "has expired" in refuse(sign(exp=NOW - leeway), leeway_s=leeway)
    assert "not valid yet" in refuse(sign(nbf=NOW + leeway + 1), leeway_s=leeway)
    assert "not valid yet" in refuse(sign(iat=NOW + leeway + 1), leeway_s=leeway)


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", "", None])
def test_a_token_without_a_signature_is_refused(alg: str | None) -> None:
    header = {"alg": alg, "kid": "one", "typ": "JWT"}
    reason = refuse(f"{encode_part(header)}.{encode_part(dict(CLAIMS))}.")
    assert "must be signed by RS256, ES256, EdDSA" in reason


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_the_public_key_is_not_a_secret_of_a_symmetric_algorithm(algorithm: str) -> None:
    """Key confusion: the signature is valid for whoever takes the algorithm from the token."""
    key = make_key("RS256")
    hmac = jwt.get_algorithm_by_name(algorithm)
    for secret in (key.pem, key.pem.strip(), key.jwk["n"].encode()):
        signing_input = f"{encode_part({'alg': algorithm, 'kid': 'one'})}.{encode_part(dict(CLAIMS))}"
        signature = hmac.sign(signing_input.encode(), secret)  # type: ignore[attr-defined]
        token = f"{signing_input}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
        assert "must be signed by" in refuse(token, key)


def test_an_algorithm_that_is_not_configured_is_refused() -> None:
    key = make_key("RS256")
    assert "must be signed by ES256" in refuse(key.sign(), key, algorithms=["ES256"])


def test_a_token_cannot_choose_another_algorithm_for_a_key() -> None:
    key = make_key("RS256")
    header = encode_part({"alg": "ES256", "kid": "one"})
    assert "not valid" in refuse(".".join([header, *key.sign().split(".")[1:]]), key)


@pytest.mark.parametrize("member", ["jwk", "jku", "x5u", "x5c"])
def test_keys_that_a_token_brings_or_names_are_ignored(member: str) -> None:
    forger = make_key("ES256", "forger")
    value = {"jwk": forger.jwk, "jku": "https://evil.example/jwks", "x5u": "https://evil.example/x", "x5c": ["MII="]}
    provider = ScriptedProvider([make_key().jwk])
    for id, reason in (("forger", "unknown key"), ("one", "signature of the access token is not valid")):
        with pytest.raises(AuthenticationError, match=reason):
            asyncio.run(provider.authenticator().authenticate(forger.sign(kid=id, **{member: value[member]})))
    assert set(provider.requests) == {"/realm/.well-known/openid-configuration", "/jwks"}


def test_claims_that_were_changed_are_refused() -> None:
    header, _, signature = make_key().sign().split(".")
    changed = encode_part({**CLAIMS, "tenant_id": "other-corp"})
    assert "signature of the access token is not valid" in refuse(f"{header}.{changed}.{signature}")


@pytest.mark.parametrize(
    "token",
    [
        *("garbage", ".", "..", "...", "a.b.c", "é.é.é", "eyJ.eyJ.", " ", "rk_12345678_secret"),
        f"{encode_part([])}.e30.",
        f"{encode_part({'alg': 'ES256', 'kid': 7})}.e30.e30",
        f"{encode_part({'alg': 'ES256', 'kid': 'one', 'crit': ['exp']})}.e30.e30",
        base64.urlsafe_b64encode(b"[" * 6000).decode() + ".e30.e30",
        base64.urlsafe_b64encode(b'{"a":' * 2000).decode() + ".e30.e30",
    ],
)
def test_other_texts_are_refused_without_a_request_to_the_provider(token: str) -> None:
    provider = ScriptedProvider([make_key().jwk])
    with pytest.raises(AuthenticationError, match="is not a JSON web token"):
        asyncio.run(provider.authenticator().authenticate(token))
    assert provider.requests == []


@pytest.mark.parametrize("token", ["a.b.c" * 5_000, make_key().sign({**CLAIMS, "groups": ["x" * 20_000]})])
def test_a_huge_token_is_refused_before_it_is_read(token: str) -> None:
    assert refuse(token) == "an access token must have at most 16384 characters"


@given(st.data())
def test_a_token_with_any_other_characters_is_refused(data: st.DataObject) -> None:
    token = make_key().sign()
    place = data.draw(st.integers(0, len(token) - 1))
    changed = token[:place] + data.draw(st.text(max_size=3)) + token[place + 1 :]
    if changed != token:
        refuse(changed)


def test_no_reason_quotes_the_token() -> None:
    token = make_key("ES256", "forger").sign()
    for text in ("s3cret-garbage", token, sign(sub="s3cret" * 50)):
        reason = refuse(text)
        assert "s3cret" not in reason
        assert token[:20] not in reason


def test_a_missing_token_is_refused_with_advice() -> None:
    assert "send the header Authorization: Bearer" in refuse("")


def test_a_provider_that_cannot_be_reached_is_no_reason_to_call_a_token_invalid() -> None:
    provider = ScriptedProvider(failure=503)
    with pytest.raises(UnavailableError, match="keys of the OpenID provider cannot be read"):
        asyncio.run(provider.authenticator().authenticate(make_key().sign()))
