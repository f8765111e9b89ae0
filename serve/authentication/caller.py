"""The caller of a request, and the role of an Authenticator."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from rag_core.errors import ScopeError
from rag_core.scopes import SCOPES, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller can read the documents that have no access list, and those that one of its `groups` can read.

    `user` is empty only if callers are not authenticated. `key_id` is empty without an API key.
    """

    tenant: str
    user: str = ""
    groups: tuple[str, ...] = ()
    scopes: frozenset[Scope] = SCOPES
    key_id: str = ""

    def require(self, *scopes: Scope) -> None:
        """Raises ScopeError with the first of the scopes that the caller lacks."""
        if missing := [scope for scope in scopes if scope not in self.scopes]:
            raise ScopeError(missing[0])


class Authenticator(Protocol):
    """Finds the caller of a request from its credentials. `requires_credentials`: it refuses requests without any."""

    requires_credentials: ClassVar[bool]

    async def authenticate(self, token: str) -> Caller:
        """`token` is that of the header `Authorization: Bearer`, or empty.

        Raises AuthenticationError if it is missing or invalid, and StoreError if it cannot be checked.
        """
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class OpenAuthenticator:
    """Takes every caller for an administrator of one tenant. Only for a gateway that listens on loopback."""

    tenant: str
    requires_credentials: ClassVar[bool] = False

    async def authenticate(self, token: str) -> Caller:  # noqa: ARG002
        return Caller(tenant=self.tenant)

    async def close(self) -> None:
        pass
