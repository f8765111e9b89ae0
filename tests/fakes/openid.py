"""An OpenID provider with a scripted transport, and the tokens that it signs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import get_default_algorithms

from rag_core.config import JwtSettings
from serve.authentication.jwt import JwtAuthenticator
from serve.authentication.signing_keys import SigningKeys

ISSUER = "https://login.example.org/realm"
AUDIENCE = "https://rag.example.org"
NOW = 1_800_000_000
CLAIMS: Mapping[str, Any] = {
    "iss": ISSUER,
    "aud": AUDIENCE,
    "sub": "anna",
    "exp": NOW + 300,
    "tenant_id": "acme-corp",
    "groups": ["staff", "harbour masters"],
    "scope": "openid retrieve:read chat:write",
}


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key and its id."""

    id: str
    algorithm: str
    private: Any

    @property
    def jwk(self) -> dict[str, Any]:
        """The public key as the provider publishes it."""
        public = get_default_algorithms()[self.algorithm].to_jwk(self.private.public_key(), as_dict=True)
        return {**public, "kid": self.id, "use": "sig", "alg": self.algorithm}

    @property
    def private_jwk(self) -> dict[str, Any]:
        private = get_default_algorithms()[self.algorithm].to_jwk(self.private, as_dict=True)
        return {**self.jwk, **private}

    @property
    def pem(self) -> bytes:
        public: bytes = self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return public

    def sign(self, claims: Mapping[str, Any] = CLAIMS, **header: Any) -> str:
        headers = {"kid": self.id, "typ": "at+jwt", **header}
        return jwt.encode(dict(claims), self.private, self.algorithm, headers)


@lru_cache
def make_key(algorithm: str = "ES256", id: str = "one", bits: int = 2048) -> SigningKey:
    match algorithm:
        case "RS256":
            return SigningKey(id, algorithm, rsa.generate_private_key(65_537, bits))
        case "ES256":
            return SigningKey(id, algorithm, ec.generate_private_key(ec.SECP256R1()))
        case _:
            return SigningKey(id, algorithm, ed25519.Ed25519PrivateKey.generate())


@dataclass(slots=True)
class ScriptedProvider:
    """A provider that publishes `jwks`. With `failure` it responds with that status, or not at all if it is an error.

    `requests` has the paths that were requested. `seconds` is the time of the clock of `keys`.
    """

    jwks: Sequence[Mapping[str, Any]] = ()
    failure: int | Exception | None = None
    configuration: Mapping[str, Any] = field(
        default_factory=lambda: {"issuer": ISSUER, "jwks_uri": "https://login.example.org/jwks"}
    )
    seconds: float = 0.0
    requests: list[str] = field(default_factory=list)

    def respond(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request.url.path)
        if isinstance(self.failure, Exception):
            raise self.failure
        if self.failure:
            return httpx2.Response(self.failure)
        is_configuration = request.url.path.endswith("/openid-configuration")
        return httpx2.Response(200, json=self.configuration if is_configuration else {"keys": self.jwks})

    def keys(self, settings: JwtSettings | None = None) -> SigningKeys:
        transport = httpx2.MockTransport(self.respond)
        return SigningKeys(settings or jwt_settings(), clock=lambda: self.seconds, transport=transport)

    def authenticator(self, settings: JwtSettings | None = None) -> JwtAuthenticator:
        return JwtAuthenticator(settings or jwt_settings(), self.keys(settings))


def jwt_settings(**settings: Any) -> JwtSettings:
    return JwtSettings.model_validate({"issuer": ISSUER, "audience": AUDIENCE, **settings})
