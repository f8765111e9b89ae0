"""`/.well-known/oauth-protected-resource`: where clients get an access token for this gateway."""

from fastapi import APIRouter, Request, Response

from rag_core.errors import NotFoundError
from rag_core.scopes import SCOPES
from rag_core.wire.authorization import ProtectedResource
from serve.bodies.openapi import success_response
from serve.http.dependencies import CurrentServices
from serve.http.protected_resource import METADATA_PATH, resource_url
from serve.http.responses import json_response

router = APIRouter()


@router.get(METADATA_PATH, responses=success_response(ProtectedResource))
def describe_protected_resource(request: Request, services: CurrentServices) -> Response:
    """Names the OpenID provider whose tokens the gateway accepts; 404 if it accepts none."""
    provider = services.settings.auth.provider
    if provider is None:
        raise NotFoundError("this gateway accepts no access tokens: auth.mode is neither jwt nor both")
    metadata = ProtectedResource(
        resource=resource_url(request, provider),
        authorization_servers=[provider.issuer],
        scopes_supported=sorted(SCOPES),
        bearer_methods_supported=["header"],
    )
    return json_response(metadata)
