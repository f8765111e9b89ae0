"""`/v1/profiles`: the shipped profiles, and the one that is served."""

from typing import Any

from fastapi import APIRouter

from rag_core.settings import list_shipped_profiles
from serve.bodies.openapi import success_response
from serve.bodies.responses import Profiles
from serve.http.dependencies import CurrentCaller, CurrentServices

router = APIRouter()


@router.get("/v1/profiles", responses=success_response(Profiles))
def profiles(
    _caller: CurrentCaller,  # identified as on all `/v1` routes; not used yet
    services: CurrentServices,
) -> dict[str, Any]:
    """Lists the shipped profiles and the served one; only the served one has `serving: true`."""
    served = services.settings.profile
    rows = [{"name": name, "serving": name == served} for name in sorted({*list_shipped_profiles(), served})]
    return {"data": rows, "next_cursor": None, "has_more": False}
