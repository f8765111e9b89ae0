"""The dependency that identifies the caller of a request. Every `/v1` route names the scopes that its callers need."""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes

from rag_core.errors import ScopeError
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
    if missing := [scope for scope in required.scopes if scope not in caller.scopes]:
        raise ScopeError(missing[0])
    return caller
