"""Who asks. Every route depends on this and on nothing else, so that keys and tokens change only this."""

from dataclasses import dataclass

from fastapi import Request

from rag_core.telemetry.operation import record_tenant
from rag_core.types import DEFAULT_TENANT


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """`groups` are those whose documents they may read beside everyone's."""

    tenant: str = DEFAULT_TENANT
    user: str = ""
    groups: tuple[str, ...] = ()


async def caller(request: Request) -> Caller:
    """Without keys everyone is the one tenant that the settings name; such a gateway listens on loopback only."""
    who = Caller(tenant=request.app.state.graph.settings.tenant)
    record_tenant(who.tenant)
    return who
