"""The dependency that identifies the caller of a request. Every `/v1` route names the scopes that its callers need."""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes

from rag_core.errors import AuthenticationError, UnavailableError
from rag_core.scopes import parse_scopes
from rag_core.telemetry.operation import record_caller
from serve.authentication.caller import Caller

BEARER = HTTPBearer(
    scheme_name="bearer",
    description="An API key (`rag keys create`), or an access token of the configured OpenID provider.",
    auto_error=False,
)


async def identify_caller(
    request: Request,
    required: SecurityScopes,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
) -> Caller:
    """The caller of the request. Raises AuthenticationError, and ScopeError if it lacks a required scope."""
    authenticator = request.app.state.profiles.own.services.authenticator
    caller: Caller = await authenticator.authenticate(credentials.credentials if credentials else "")
    record_caller(caller.tenant, caller.user, caller.key_id)
    caller.require(*parse_scopes(required.scopes))
    return caller


async def has_credentials(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]
) -> bool:
    """True if the caller can be identified, whatever its scopes. Does not raise: probes have no credentials."""
    authenticator = request.app.state.profiles.own.services.authenticator
    try:
        await authenticator.authenticate(credentials.credentials if credentials else "")
    except (AuthenticationError, UnavailableError):
        return False
    return True
