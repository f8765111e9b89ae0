"""The caller of a request. All `/v1` routes depend on `identify_caller`, where authentication would be added."""

from dataclasses import dataclass

from fastapi import Request

from rag_core.telemetry.operation import record_tenant
from rag_core.types import DEFAULT_TENANT


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller can read the documents that have no access list, and those that one of its `groups` can read."""

    tenant: str = DEFAULT_TENANT
    user: str = ""
    groups: tuple[str, ...] = ()


async def identify_caller(request: Request) -> Caller:
    """A caller of the tenant in the settings. It is not authenticated, so the gateway listens on loopback only."""
    caller = Caller(tenant=request.app.state.profiles.own_settings.tenant)
    record_tenant(caller.tenant)
    return caller
