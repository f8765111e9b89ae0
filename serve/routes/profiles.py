"""`/v1/profiles`: the shipped profiles, and the one that is served."""

from fastapi import APIRouter, Response

from rag_core.settings import list_shipped_profiles
from rag_core.wire.documents import Profiles, ServedProfile
from serve.bodies.openapi import success_response
from serve.http.dependencies import CurrentCaller, CurrentServices
from serve.http.responses import json_response

router = APIRouter()


@router.get("/v1/profiles", responses=success_response(Profiles))
def profiles(
    _caller: CurrentCaller,  # identified as on all `/v1` routes; not used yet
    services: CurrentServices,
) -> Response:
    """Lists the shipped profiles and the served one; only the served one has `serving: true`."""
    served = services.settings.profile
    names = sorted({*list_shipped_profiles(), served})
    rows = [ServedProfile(name=name, serving=name == served) for name in names]
    return json_response(Profiles(data=rows, next_cursor=None, has_more=False))
