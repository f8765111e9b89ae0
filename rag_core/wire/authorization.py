"""The metadata of a protected resource (RFC 9728)."""

from rag_core.wire.shape import Shape


class ProtectedResource(Shape):
    """The providers whose access tokens the gateway accepts, and the scopes that its routes need."""

    resource: str
    authorization_servers: list[str]
    scopes_supported: list[str]
    bearer_methods_supported: list[str]
