"""The URLs by which OAuth clients know the gateway (RFC 9728)."""

from fastapi import Request

from rag_core.config import JwtSettings

METADATA_PATH = "/.well-known/oauth-protected-resource"


def resource_url(request: Request, provider: JwtSettings) -> str:
    """The configured URL, else that of the request's host, which `RequestChecks` has accepted."""
    return provider.resource or f"{request.url.scheme}://{request.url.netloc}"


def metadata_url(request: Request) -> str:
    """The URL where clients learn which provider issues the gateway's tokens. Empty if it accepts none."""
    provider = request.app.state.profiles.own_settings.auth.provider
    return resource_url(request, provider) + METADATA_PATH if provider else ""
