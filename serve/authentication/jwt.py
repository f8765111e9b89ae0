"""Callers with an access token of an OpenID provider: a JSON web token of RFC 9068."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jwt

from rag_core.config import JwtSettings
from rag_core.errors import AuthenticationError
from rag_core.scopes import ROLES, SCOPES, Scope
from rag_core.types import TENANT_PATTERN
from serve.authentication.caller import Caller
from serve.authentication.signing_keys import SigningKeys

USER_PREFIX = "jwt:"
"""The beginning of the users of tokens. A key's own user begins otherwise, so that no token can be of that user."""
MAX_TOKEN_CHARS = 16_384
MAX_GROUPS = 1_000
REQUIRED_CLAIMS = ("exp", "iss", "aud", "sub")

_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,255}")
"""The names that Postgres and logs can hold."""

_REASONS: Mapping[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "the access token has expired",
    jwt.ImmatureSignatureError: "the access token is not valid yet",
    jwt.InvalidAudienceError: "the access token is for another audience",
    jwt.InvalidIssuerError: "the access token has another issuer",
    jwt.InvalidSignatureError: "the signature of the access token is not valid",
}


@dataclass(frozen=True, slots=True)
class JwtAuthenticator:
    """Finds callers by the claims of their tokens. Only the settings decide about algorithms and keys."""

    requires_credentials: ClassVar[bool] = True

    settings: JwtSettings
    keys: SigningKeys

    async def authenticate(self, token: str) -> Caller:
        """Raises UnavailableError if the keys of the provider cannot be read."""
        if not token:
            raise AuthenticationError(
                "this gateway requires an access token: send the header Authorization: Bearer TOKEN"
            )
        key = await self._find_key(token)
        return self._build_caller(self._verify(token, key))

    async def close(self) -> None:
        await self.keys.close()

    async def _find_key(self, token: str) -> jwt.PyJWK:
        """The token's algorithm is checked first, so that other tokens cause no requests to the provider."""
        if len(token) > MAX_TOKEN_CHARS:
            raise AuthenticationError(f"an access token must have at most {MAX_TOKEN_CHARS} characters")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise AuthenticationError("the access token is not a JSON web token") from None
        if header.get("alg") not in self.settings.algorithms:
            raise AuthenticationError(f"an access token must be signed by {', '.join(self.settings.algorithms)}")
        key = await self.keys.find(header.get("kid", ""))
        if key is None:
            raise AuthenticationError("the access token is signed with an unknown key")
        return key

    def _verify(self, token: str, key: jwt.PyJWK) -> Mapping[str, Any]:
        """The claims. The key decides about the algorithm, and a token that names another one is invalid."""
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self.settings.audience,
                issuer=self.settings.issuer,
                leeway=self.settings.leeway_s,
                options={"require": list(REQUIRED_CLAIMS)},
            )
        except jwt.MissingRequiredClaimError as error:
            raise AuthenticationError(f"the access token lacks the claim {error.claim}") from None
        except jwt.PyJWTError as error:
            raise AuthenticationError(_REASONS.get(type(error), "the access token is not valid")) from None

    def _build_caller(self, claims: Mapping[str, Any]) -> Caller:
        settings = self.settings
        tenant, user = (_read_name(claims, claim) for claim in (settings.tenant_claim, settings.user_claim))
        if not re.fullmatch(TENANT_PATTERN, tenant):
            raise AuthenticationError(f"the claim {settings.tenant_claim} of the access token must be a tenant")
        roles = _read_names(claims, settings.roles_claim) if settings.roles_claim else ()
        return Caller(
            tenant=tenant,
            user=USER_PREFIX + user,
            groups=_read_names(claims, settings.groups_claim),
            scopes=read_scopes(claims).union(*(ROLES[role] for role in roles if role in ROLES)),
        )


def read_scopes(claims: Mapping[str, Any]) -> frozenset[Scope]:
    """The scopes of the claims `scope` and `scp`, which are a list or a text with blanks. Ignores unknown scopes."""
    values = (claims.get(claim) for claim in ("scope", "scp"))
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    names = {name for text in texts if isinstance(text, str) for name in text.split()}
    return frozenset(scope for scope in SCOPES if scope in names)


def _read_name(claims: Mapping[str, Any], claim: str) -> str:
    """Raises AuthenticationError if the claim is missing."""
    names = _read_names(claims, claim)
    if len(names) != 1:
        raise AuthenticationError(f"the access token must have the claim {claim} with one value")
    return names[0]


def _read_names(claims: Mapping[str, Any], claim: str) -> tuple[str, ...]:
    """The values of a claim that is a text or a list of texts. Empty if it is missing."""
    value = claims.get(claim) or []
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or len(names) > MAX_GROUPS:
        raise AuthenticationError(f"the claim {claim} of the access token must be a list of at most {MAX_GROUPS} names")
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        raise AuthenticationError(
            f"the values of the claim {claim} of the access token must be names of at most 255 characters"
        )
    return tuple(names)
