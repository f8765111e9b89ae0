"""Callers with an API key or an access token."""

from dataclasses import dataclass
from typing import ClassVar

from rag_core.errors import AuthenticationError
from rag_core.storage.keys import PREFIX
from serve.authentication.caller import Caller
from serve.authentication.jwt import JwtAuthenticator
from serve.authentication.keys import KeyAuthenticator


@dataclass(frozen=True, slots=True)
class MixedAuthenticator:
    """Finds callers by their keys, which begin with `rk_`, or else by their access tokens."""

    requires_credentials: ClassVar[bool] = True

    keys: KeyAuthenticator
    tokens: JwtAuthenticator

    async def authenticate(self, token: str) -> Caller:
        if not token:
            raise AuthenticationError(
                "this gateway requires an API key or an access token: send the header Authorization: Bearer KEY"
            )
        authenticator = self.keys if token.startswith(f"{PREFIX}_") else self.tokens
        return await authenticator.authenticate(token)

    async def close(self) -> None:
        await self.keys.close()
        await self.tokens.close()
