"""The responses of a gateway as objects, or as the errors that belong to their statuses."""

import re
from collections.abc import Mapping
from typing import Any

import httpx2

from rag_core.errors import (
    AuthenticationError,
    NotFoundError,
    RagError,
    ResponseError,
    ScopeError,
    TooLargeError,
    UnavailableError,
    UsageError,
)

API_KEY_VARIABLE = "RAG_API_KEY"
"""The environment variable with the API key or the access token for a gateway."""

_MISSING_SCOPE = re.compile(r'error="insufficient_scope", scope="([\w:]+)"')
"""The part of the header `WWW-Authenticate` of RFC 6750."""


def bearer_header(key: str, source: str) -> Mapping[str, str]:
    """The header with the API key or the access token; empty without one. `source` names the place of the key.

    Raises UsageError, without quoting it, for a key that a header cannot have.
    """
    key = key.strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"{source} must have printable ASCII characters only; copy the whole key again")
    return {"Authorization": f"Bearer {key}"} if key else {}


def read_response(response: httpx2.Response) -> dict[str, Any]:
    """The body. Raises ResponseError if it is not a JSON object, or the RagError that belongs to the status."""
    check_response(response)
    return read_object(response)


def read_object(response: httpx2.Response) -> dict[str, Any]:
    """The body, whatever the status. Raises ResponseError if it is not a JSON object."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise ResponseError(f"the response from {response.url} is not a JSON object: is a gateway there?")
    return body


def check_response(response: httpx2.Response) -> None:
    """Raises the RagError that belongs to the status, with the detail of the problem."""
    if response.is_success:
        return
    if match := _MISSING_SCOPE.search(response.headers.get("WWW-Authenticate", "")):
        raise ScopeError(match[1], f"; set {API_KEY_VARIABLE} to another key")
    try:
        detail = str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"the server responded with status {response.status_code}"
    kinds: Mapping[int, type[RagError]] = {401: AuthenticationError, 404: NotFoundError, 413: TooLargeError}
    kinds = {**dict.fromkeys((400, 403, 421, 422), UsageError), **kinds}
    raise kinds.get(response.status_code, UnavailableError)(f"{detail}{_credentials_hint(response)}")


def retry_seconds(response: httpx2.Response) -> float:
    """The header `Retry-After`, or 1 if it is missing or is a date."""
    value = response.headers.get("Retry-After", "")
    return max(float(value), 1.0) if value.isdecimal() else 1.0


def _credentials_hint(response: httpx2.Response) -> str:
    """How to send credentials, if the request had no valid ones."""
    if response.status_code == httpx2.codes.UNAUTHORIZED:
        return f"; set {API_KEY_VARIABLE} to a key that `rag keys create` printed, or to an access token"
    return ""
