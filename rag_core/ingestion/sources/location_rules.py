"""The locations that a request can name as a source. The operator's own commands are not limited."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from rag_core.errors import LocationError, SourceError
from rag_core.ingestion.sources.local import is_inside, path_from_uri

SCHEMES = ("file", "gs", "http", "https", "s3")
"""The schemes of request locations. Other drivers of fsspec read archives, other hosts or this process's memory."""

PORTS = {"http": 80, "https": 443}

_PASSWORD = re.compile(r"://[^/?#@]*:[^/?#]*@")

Place: TypeAlias = tuple[str, str, int, str]
"""Scheme, host or bucket, port, and path. Each location below an allowed place has the same first three."""


@dataclass(frozen=True, slots=True)
class LocationRules:
    """The folders and URI prefixes in `allowed`; an http location must also have an allowed address.

    `private_networks`: private and loopback addresses are allowed.
    """

    allowed: tuple[str, ...]
    private_networks: bool = False

    def check(self, location: str) -> None:
        """Raises LocationError unless the location, with links and percent-encoding resolved, is an allowed one."""
        refuse_password(location)
        if not self.allowed:
            raise LocationError("requests cannot name locations: ingestion.allowed_locations is empty")
        scheme = "file" if _is_local(location) else location.partition("://")[0]
        if scheme not in SCHEMES:
            raise LocationError(f"the scheme of a location must be one of {', '.join(SCHEMES)}, got {location[:80]!r}")
        if "::" in location:
            raise LocationError(f"a location must not contain ::, which chains file systems, got {location[:80]!r}")
        if scheme == "file":
            path = _resolve(location)
            is_allowed = any(is_inside(path, root) for root in self._folders())
        else:
            place = _parse(location)
            is_allowed = any(_contains(_parse(uri), place) for uri in self.allowed if not _is_local(uri))
        if not is_allowed:
            raise LocationError(f"a location must be under one of ingestion.allowed_locations, got {location[:200]!r}")

    def _folders(self) -> Iterator[str]:
        return (_resolve(location) for location in self.allowed if _is_local(location))


def refuse_password(location: str) -> None:
    """Raises LocationError for a URI with a password: the URI of a source is stored, and shown with its documents."""
    if _PASSWORD.search(location):
        raise LocationError(
            "a location must not contain a password, because it is stored with the documents; configure the driver "
            "by fsspec's variables instead, such as FSSPEC_FTP_USERNAME and FSSPEC_FTP_PASSWORD"
        )


def _is_local(location: str) -> bool:
    return "://" not in location or location.startswith("file://")


def _resolve(location: str) -> str:
    """The path of a path, a `~` path or a `file://` uri, with all links resolved."""
    try:
        is_uri = location.startswith("file://")
        return os.path.realpath(path_from_uri(location) if is_uri else os.path.expanduser(location))
    except (SourceError, ValueError) as error:  # another host, or a NUL
        raise LocationError(f"a file location must be a path of this host, got {location[:80]!r}") from error


def _parse(location: str) -> Place:
    """Raises LocationError for a location that two programs could read differently."""
    scheme, _, rest = location.partition("://")
    if "\\" in rest or not rest.isprintable() or " " in rest:
        raise LocationError(f"a location must not contain backslashes, spaces or controls, got {location[:80]!r}")
    if scheme not in PORTS:
        bucket, _, key = rest.partition("/")
        _check_path(key)
        return scheme, bucket, 0, f"/{key}"
    try:
        parts = urlsplit(location)
        host, port = parts.hostname or "", parts.port or PORTS[scheme]
    except ValueError as error:
        raise LocationError(f"a location must be a valid URL, got {location[:80]!r}") from error
    if "@" in parts.netloc or not parts.netloc.isascii() or "%" in parts.netloc:
        raise LocationError(f"the host of a location must be a plain name, got {location[:80]!r}")
    _check_path(parts.path)
    return scheme, host, port, unquote(parts.path) or "/"


def _check_path(path: str) -> None:
    """Raises LocationError for the segments `.` and `..`, however often they are percent-encoded."""
    while (decoded := unquote(path)) != path:
        path = decoded
    if any(segment in (".", "..") for segment in path.replace("\\", "/").split("/")):
        raise LocationError(f"a location must not contain the segments . and .., got {path[:80]!r}")


def _contains(allowed: Place, place: Place) -> bool:
    """An allowed place without a host, such as `https://`, contains every host."""
    scheme, host, port, path = allowed
    is_same_host = scheme == place[0] and host in ("", place[1]) and port == place[2]
    return is_same_host and (place[3] == path or place[3].startswith(path.rstrip("/") + "/"))
