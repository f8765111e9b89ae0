"""FastAPI dependencies of the routes: the caller, the served profiles, and the services of the gateway's own one."""

from typing import Annotated

from fastapi import Depends, Request, Security

from serve.authentication.caller import Caller
from serve.http.caller import identify_caller
from serve.profiles import ServedProfiles
from serve.services import Services

# One alias per scope, named for what its callers do.
Reader = Annotated[Caller, Security(identify_caller, scopes=["retrieve:read"])]
Chatter = Annotated[Caller, Security(identify_caller, scopes=["chat:write"])]
Ingester = Annotated[Caller, Security(identify_caller, scopes=["ingest:write"])]
JobReader = Annotated[Caller, Security(identify_caller, scopes=["jobs:read"])]
DocumentDeleter = Annotated[Caller, Security(identify_caller, scopes=["documents:delete"])]
MemoryDeleter = Annotated[Caller, Security(identify_caller, scopes=["memory:delete"])]
Evaluator = Annotated[Caller, Security(identify_caller, scopes=["evaluate:write"])]


async def current_profiles(request: Request) -> ServedProfiles:
    """The profiles that the application serves. This function is async, so it needs no thread.

    Questions and probes are therefore answered even while all threads wait for the store.
    """
    profiles: ServedProfiles = request.app.state.profiles
    return profiles


CurrentProfiles = Annotated[ServedProfiles, Depends(current_profiles)]


async def current_services(profiles: CurrentProfiles) -> Services:
    """The services of the gateway's own profile. All profiles share its store."""
    return profiles.own.services


CurrentServices = Annotated[Services, Depends(current_services)]
