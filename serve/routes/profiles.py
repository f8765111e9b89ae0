"""`/v1/profiles`: the profiles of the gateway's configuration."""

from fastapi import APIRouter, Response

from rag_core.wire.documents import Profiles, ServedProfile
from serve.bodies.openapi import success_response
from serve.http.dependencies import CurrentProfiles, Reader
from serve.http.responses import json_response
from serve.public_errors import public_message

router = APIRouter()


@router.get("/v1/profiles", responses=success_response(Profiles))
def profiles(
    _caller: Reader,  # identified as on all `/v1` routes; not used yet
    profiles: CurrentProfiles,
) -> Response:
    """Lists all profiles; `serving` ones answer requests, `loaded` ones without first loading their models.

    The profile with `default: true` answers the requests that name none.
    """
    own, loaded = profiles.own_settings.profile, profiles.built_names
    served = [
        ServedProfile(
            name=name,
            version=profiles.version(name),
            serving=True,
            default=name == own,
            loaded=name in loaded,
            reason="",
        )
        for name in profiles.names
    ]
    others = [
        ServedProfile(
            name=name,
            version=profiles.version(name),
            serving=False,
            default=False,
            loaded=False,
            reason=public_message(reason),
        )
        for name, reason in sorted(profiles.unserved.items())
    ]
    return json_response(Profiles(data=[*served, *others], next_cursor=None, has_more=False))
