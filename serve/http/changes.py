"""Routes that change something, which a gateway with `api.read_only` refuses."""

from fastapi import Request

from rag_core.errors import ReadOnlyError
from serve.http.dependencies import CurrentServices
from serve.http.request_checks import SAFE_METHODS

READING_ROUTES = frozenset(
    {
        "/v1/answer",
        "/v1/chat/completions",
        "/v1/conversations/{id:conversation}",
        "/v1/conversations/{id:path}/participants",
        "/v1/feedback",
        "/v1/retrieve",
        "/v1/vector_stores/{collection}/search",
    }
)
"""Routes whose POST, PUT and DELETE requests change no documents and jobs.

A new route counts as a changing one until it is listed."""


async def check_changes(request: Request, services: CurrentServices) -> None:
    """Raises ReadOnlyError if the route changes something and `api.read_only` is set."""
    is_reading = request.method in SAFE_METHODS or request.scope["route"].path in READING_ROUTES
    if services.settings.api.read_only and not is_reading:
        raise ReadOnlyError("this gateway is read-only: api.read_only is true, so it changes no documents and jobs")
