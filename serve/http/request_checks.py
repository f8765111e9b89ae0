"""The checks of every request, whatever its route: its host, its text, its version, and the page that sent it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.http.response_headers import VENDOR, VENDOR_JSON

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+))(?::\d*)?", re.ASCII)
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
TRUSTED_FETCH_SITES = ("same-origin", "none")
"""The values of `Sec-Fetch-Site` that are accepted.

`same-origin` is for the gateway's own pages, `none` for an address that the user entered. `same-site` (another port or
subdomain) is refused.
"""


@dataclass(frozen=True, slots=True)
class RequestChecks:
    """Refuses other hosts (421), a NUL in the address (422), other versions of the vendor media type (406), and other
    origins (403)."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            api = scope["app"].state.profiles.own_settings.api
            check_host(headers.getlist("host"), api.hosts)
            if "\0" in scope["path"] or b"%00" in scope["query_string"]:
                raise HTTPException(422, "the path and the query string must not contain NUL")
            check_version(headers.get("accept", ""))
            if scope["method"] not in SAFE_METHODS:
                check_origin(headers, api.cors_origins)
        await self.app(scope, receive, send)


def check_host(headers: Sequence[str], hosts: Sequence[str]) -> None:
    """Raises HTTPException unless the host is an IP address, a loopback name, or one of `hosts`.

    Otherwise the page of a host name that its owner points to this machine (DNS rebinding) would be of the same origin
    as the gateway. No one can point an IP address elsewhere.
    """
    for header in headers:
        match = _HOST.fullmatch(header)
        name = (match[1] or match[2]).lower().rstrip(".") if match else ""
        if not (is_ip_address(name) or any(matches_host(name, host) for host in ("localhost", "*.localhost", *hosts))):
            raise HTTPException(421, f"Host must be an IP address, localhost or one of api.hosts, got {header[:80]!r}")


def is_ip_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def matches_host(name: str, pattern: str) -> bool:
    """A pattern is a name, `*.` with the end of a name, or `*`; all in lower case."""
    return pattern in ("*", name) or (pattern.startswith("*.") and name.endswith(pattern[1:]))


def check_version(accept: str) -> None:
    """Raises HTTPException if the client accepts only other versions of the vendor media type."""
    media_types = [media_type.partition(";")[0].strip() for media_type in accept.split(",")]
    if all(media_type.startswith(VENDOR) and media_type != VENDOR_JSON for media_type in media_types):
        raise HTTPException(406, f"Accept must allow {VENDOR_JSON} or application/json, got {accept}")


def check_origin(headers: Headers, allowed: Sequence[str]) -> None:
    """Raises HTTPException for a browser's request from another origin that is not allowed.

    Otherwise any web page could send forms and uploads, even to a gateway that listens on the user's loopback only.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if origin in allowed:
        return
    if site:
        is_trusted = site in TRUSTED_FETCH_SITES
    else:  # older browsers send only `Origin`, which can be `null`; clients that are not browsers send neither header
        is_trusted = not origin or origin.partition("://")[2].lower() == headers.get("host", "").lower()
    if not is_trusted:
        raise HTTPException(
            403, f"cross-origin requests must come from api.cors_origins, got one from {origin or site}"
        )
