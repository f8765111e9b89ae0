"""Request headers that clients control a request with: `Idempotency-Key` and `Prefer: wait`."""

import re
from typing import Annotated

from fastapi import Depends, Header, Request

from rag_core.errors import UsageError

MAX_KEY_CHARS = 255
MAX_WAIT_SECONDS = 60

_KEY = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])+)"|([!#$%&\'*+./:^_`|~0-9A-Za-z-]+)')


async def read_idempotency_key(
    request: Request,
    _openapi: Annotated[str, Header(alias="Idempotency-Key", max_length=MAX_KEY_CHARS + 2)] = "",
) -> str:
    """The key, or an empty string without the header. Raises UsageError if it is malformed.

    It is a quoted string (draft-ietf-httpapi-idempotency-key-header-07), or a token without quotes. The parameter
    `_openapi` only documents the header. This function is async, so that answers need no thread.
    """
    headers = request.headers.getlist("idempotency-key")
    if not headers:
        return ""
    match = _KEY.fullmatch(headers[0].strip())
    quoted, token = match.groups() if match else ("", "")
    key = re.sub(r"\\(.)", r"\1", quoted) if quoted else token or ""
    if len(headers) > 1 or not 0 < len(key) <= MAX_KEY_CHARS:
        raise UsageError(
            f"Idempotency-Key must be one quoted string or token of 1 to {MAX_KEY_CHARS} ASCII characters, "
            f"got {', '.join(headers)[:80]}"
        )
    return key


def read_wait_seconds(
    request: Request,
    _openapi: Annotated[str, Header(alias="Prefer", examples=["wait=10"])] = "",
) -> int:
    """The N of the first `Prefer: wait=N` (RFC 7240), at most `MAX_WAIT_SECONDS`.

    A bare `wait` means the maximum. Returns 0 without the preference, or if N is not a number. The parameter `_openapi`
    only documents the header.
    """
    for preference in ",".join(request.headers.getlist("prefer")).split(","):
        name, equals, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "wait":
            seconds = value.strip().strip('"') if equals else str(MAX_WAIT_SECONDS)
            return min(int(seconds[:9]), MAX_WAIT_SECONDS) if seconds.isdecimal() else 0
    return 0


IdempotencyKey = Annotated[str, Depends(read_idempotency_key)]
WaitSeconds = Annotated[int, Depends(read_wait_seconds)]
