"""Whatever fsspec has a driver for: s3://, gs://, memory:// and others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import fsspec
from fsspec.asyn import AsyncFileSystem

from rag_core.errors import DocumentError, ListingError, SourceError, TransientError
from rag_core.ingestion.sources.globs import Globs
from rag_core.types import Entry, clamp_ns

_MODIFIED = ("mtime", "LastModified", "updated", "last_modified", "created")
_ETAG = ("ETag", "etag", "checksum", "sha")
_FORBIDDEN = (401, 403)


@dataclass(frozen=True, slots=True)
class RemoteTree:
    uri: str

    def entries(self, globs: Globs, recursive: bool) -> Iterator[Entry]:
        try:
            system, root = _opened(self.uri)
            found = _found(system, root, recursive)
        except Exception as error:
            raise ListingError(f"{self.uri} cannot be listed to its end: {error}") from error
        for path, facts in sorted(found.items()):
            below = path.removeprefix(root).removeprefix("/")
            if facts.get("type", "file") == "file" and not path.endswith("/") and (not below or globs.match(below)):
                yield _entry(f"{self.uri.rstrip('/')}/{below}" if below else self.uri, facts)

    def body(self, entry: Entry, limit: int) -> bytes:
        """At most limit + 1 bytes."""
        below = entry.uri.removeprefix(self.uri).lstrip("/")
        try:
            system, root = _opened(self.uri)  # some drivers connect here
            path = f"{root.rstrip('/')}/{below}" if below else root
            with system.open(path, "rb") as file:
                return bytes(file.read(limit + 1))
        except FileNotFoundError as error:
            raise DocumentError("read", "gone since it was listed", True) from error
        except PermissionError as error:
            raise DocumentError("read", "permission denied") from error
        except Exception as error:
            if any(getattr(error, name, None) in _FORBIDDEN for name in ("status", "code")):
                raise DocumentError("read", "permission denied") from error
            raise TransientError("read", f"{type(error).__name__}: {error}", True) from error


def remote_uri(location: str) -> str:
    try:
        system, root = _opened(location)
        exists = system.exists(root)
    except Exception as error:
        raise SourceError(f"{location} cannot be used as a source: {error}") from error
    if not exists:
        raise SourceError(f"{location} does not exist")
    return str(system.unstrip_protocol(root))


def _opened(uri: str) -> tuple[Any, str]:
    system, root = fsspec.url_to_fs(uri)
    return system, str(root)


def _found(system: Any, root: str, recursive: bool) -> Mapping[str, Mapping[str, Any]]:
    # Drivers keep what they listed before, and most leave a folder out that fails: either would delete documents.
    system.invalidate_cache()
    strict = {"on_error": "raise"} if _walks(system) else {}
    found: dict[str, dict[str, Any]] = system.find(root, maxdepth=None if recursive else 1, detail=True, **strict)
    if not found and not system.exists(root):
        raise FileNotFoundError(root)
    return found


def _walks(system: Any) -> bool:
    """Whether its `find` is fsspec's own, which passes `on_error` on; S3's lists by prefix, and raises by itself."""
    kind = type(system)
    if issubclass(kind, AsyncFileSystem):
        return kind._find is AsyncFileSystem._find
    return bool(kind.find is fsspec.AbstractFileSystem.find)


def _entry(uri: str, facts: Mapping[str, Any]) -> Entry:
    etag = str(_first(facts, _ETAG) or "").strip('"')
    modified_ns = clamp_ns(_nanoseconds(_first(facts, _MODIFIED)))
    return Entry(uri=uri, size=facts.get("size") or 0, modified_ns=modified_ns, etag=etag)


def _first(facts: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((facts[name] for name in names if facts.get(name)), None)


def _nanoseconds(moment: datetime | str | float | None) -> int:
    match moment:
        case datetime():
            return int(moment.timestamp() * 1e9)
        case str():
            return int(datetime.fromisoformat(moment).timestamp() * 1e9)
        case None:
            return 0
        case seconds:
            return int(seconds * 1e9)
