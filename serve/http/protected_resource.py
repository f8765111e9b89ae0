"""The URLs by which OAuth clients know the gateway (RFC 9728), and its challenges to them (RFC 6750)."""

from fastapi import Request

from rag_core.config import JwtSettings

METADATA_PATH = "/.well-known/oauth-protected-resource"


def resource_url(request: Request, provider: JwtSettings) -> str:
    """The configured URL, else that of the request's host, which `RequestChecks` has accepted."""
    return provider.resource or f"{request.url.scheme}://{request.url.netloc}"


def build_challenge(request: Request) -> str:
    """The header `WWW-Authenticate` of status 401. It names an error only if the request has credentials."""
    parameters = ['error="invalid_token"'] if "authorization" in request.headers else []
    if provider := request.app.state.profiles.own_settings.auth.provider:
        parameters.append(f'resource_metadata="{resource_url(request, provider)}{METADATA_PATH}"')
    return f"Bearer {', '.join(parameters)}".rstrip()
