"""What a client asks of a request by its headers: that it counts once, and that its outcome is waited for."""

import re
from typing import Annotated

from fastapi import Depends, Header, Request

from rag_core.errors import UsageError

LONGEST_KEY = 255
LONGEST_WAIT = 60
"""Seconds."""

_KEY = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])+)"|([!#$%&\'*+./:^_`|~0-9A-Za-z-]+)')


def idempotency_key(
    request: Request,
    _documented: Annotated[str, Header(alias="Idempotency-Key", max_length=LONGEST_KEY + 2)] = "",
) -> str:
    """As draft-ietf-httpapi-idempotency-key-header-07 has it, a quoted string, or the bare word; empty without one."""
    given = request.headers.getlist("idempotency-key")
    if not given:
        return ""
    found = _KEY.fullmatch(given[0].strip())
    key = re.sub(r"\\(.)", r"\1", found[1]) if found and found[1] else found[2] if found else ""
    if len(given) > 1 or not 0 < len(key) <= LONGEST_KEY:
        raise UsageError(
            f"Idempotency-Key must be one quoted string or word of 1 to {LONGEST_KEY} characters of ASCII, "
            f"got {', '.join(given)[:80]}"
        )
    return key


def seconds_to_wait(
    request: Request,
    _documented: Annotated[str, Header(alias="Prefer", examples=["wait=10"])] = "",
) -> int:
    """Of `Prefer: wait=N` (RFC 7240), of which the first counts; 0 for none, and for what is no number."""
    for each in ",".join(request.headers.getlist("prefer")).split(","):
        name, equals, value = each.partition(";")[0].partition("=")
        if name.strip().lower() == "wait":
            number = value.strip().strip('"')
            return _seconds(number) if equals else LONGEST_WAIT
    return 0


def _seconds(number: str) -> int:
    return min(int(number[:9]), LONGEST_WAIT) if number.isdecimal() else 0


Key = Annotated[str, Depends(idempotency_key)]
Wait = Annotated[int, Depends(seconds_to_wait)]
