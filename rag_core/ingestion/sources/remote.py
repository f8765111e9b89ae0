"""Files of every file system that fsspec has a driver for: s3://, gs://, memory:// and others."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import fsspec
from fsspec.asyn import AsyncFileSystem

from rag_core.errors import DocumentError, ListingError, LocationError, SourceError, TransientError, describe_error
from rag_core.ingestion.containers.source_file import SourceFile
from rag_core.ingestion.sources.access_files import MAX_BYTES, SUFFIX, AccessFiles, is_access_file
from rag_core.ingestion.sources.globs import Globs
from rag_core.ingestion.sources.location_rules import PORTS, LocationRules
from rag_core.types import Entry, clamp_ns

_log = logging.getLogger(__name__)

_MODIFIED_KEYS = ("mtime", "LastModified", "updated", "last_modified", "created")
_ETAG_KEYS = ("ETag", "etag", "checksum", "sha")
_FORBIDDEN_STATUSES = (401, 403)


@dataclass(frozen=True, slots=True)
class RemoteTree:
    uri: str
    rules: LocationRules | None = None

    def list_entries(self, globs: Globs, recursive: bool) -> Iterator[Entry]:
        try:
            system, root = _open_file_system(self.uri, self.rules)
            files = _find_files(system, root, recursive)
            access, folder = self._find_access_files(system, root, files)
        except LocationError:
            raise
        except Exception as error:
            raise ListingError(f"{self.uri} cannot be listed completely: {_reason(error, self.rules)}") from error
        for path, facts in sorted(files.items()):
            relative = _relative_path(path, root)
            is_file = facts.get("type", "file") == "file" and not path.endswith("/") and not is_access_file(path)
            if is_file and (not relative or globs.matches(relative)):
                uri = f"{self.uri.rstrip('/')}/{relative}" if relative else self.uri
                etag = str(_first_value(facts, _ETAG_KEYS) or "").strip('"')
                modified_ns = clamp_ns(_to_nanoseconds(_first_value(facts, _MODIFIED_KEYS)))
                size, groups = facts.get("size") or 0, access.find_groups(_relative_path(path, folder))
                yield Entry(uri=uri, size=size, modified_ns=modified_ns, etag=etag, access=groups)

    def _find_access_files(
        self, system: Any, root: str, files: Mapping[str, Mapping[str, Any]]
    ) -> tuple[AccessFiles, str]:
        """The access files, and the folder that their paths begin at. A single file has those next to it."""
        if list(files) != [root]:
            access = AccessFiles(self._read_access_file)
            access.add(_relative_path(path, root) for path in files if is_access_file(path))
            return access, root
        folder, _, name = root.rpartition("/")
        access = AccessFiles(RemoteTree(self.uri.rpartition("/")[0], self.rules)._read_access_file)
        if self.uri.partition("://")[0] not in PORTS:  # web servers cannot list folders, and answer any path
            access.add(path for path in (SUFFIX, name + SUFFIX) if system.exists(f"{folder}/{path}"))
        return access, folder

    def read(self, entry: Entry, limit: int) -> bytes:
        """Returns at most limit + 1 bytes."""
        try:
            with self._open_file(entry.uri) as file:
                return bytes(file.read(limit + 1))
        except Exception as error:
            raise self._translate_error(error) from error

    def open(self, uri: str) -> SourceFile:
        """Opens a file for random access, which fetches only the parts that are read."""
        try:
            return SourceFile(self._open_file(uri), self._translate_error)
        except Exception as error:
            raise self._translate_error(error) from error

    def _read_access_file(self, path: str) -> bytes:
        return self.read(Entry(uri=f"{self.uri.rstrip('/')}/{path}", size=0, modified_ns=0), MAX_BYTES)

    def _open_file(self, uri: str) -> Any:
        relative = uri.removeprefix(self.uri).lstrip("/")
        system, root = _open_file_system(self.uri, self.rules)  # some drivers connect here
        return system.open(f"{root.rstrip('/')}/{relative}" if relative else root, "rb")

    def _translate_error(self, error: Exception) -> DocumentError:
        if isinstance(error, FileNotFoundError):
            # fsspec's HTTP file system calls every failure this
            if isinstance(error.__cause__, LocationError):
                return DocumentError("read", str(error.__cause__))
            return DocumentError("read", "deleted after it was listed", True)
        if isinstance(error, LocationError):
            return DocumentError("read", str(error))
        is_forbidden = any(getattr(error, name, None) in _FORBIDDEN_STATUSES for name in ("status", "code"))
        if is_forbidden or isinstance(error, PermissionError):
            return DocumentError("read", "permission denied")
        return TransientError("read", _reason(error, self.rules), True)


def remote_uri(location: str, rules: LocationRules | None = None) -> str:
    """The full uri of an existing location. Raises SourceError if it is unusable."""
    try:
        system, root = _open_file_system(location, rules)
        uri = str(system.unstrip_protocol(root)) if system.exists(root) else ""
    except LocationError:
        raise
    except Exception as error:
        hint = (
            "; give a path, or a URI of a scheme whose fsspec driver is installed" if type(error) is ValueError else ""
        )
        raise SourceError(f"{location} cannot be used as a source: {_reason(error, rules)}{hint}") from error
    if not uri:
        raise SourceError(f"{location} does not exist")
    return uri


def _reason(error: Exception, rules: LocationRules | None) -> str:
    """The reason of a failure. A request gets only the class: drivers quote addresses and names of this network."""
    if rules is None:
        return describe_error(error)
    _log.warning("cannot read a location of a request: %s", describe_error(error))
    return type(error).__name__


def _open_file_system(uri: str, rules: LocationRules | None) -> tuple[Any, str]:
    """The driver's file system, and the path in it. With `rules`, HTTP connections are checked."""
    options = {}
    if rules and uri.partition("://")[0] in PORTS:
        from rag_core.ingestion.sources.guarded_http import GuardedClient

        options = {"get_client": GuardedClient(rules)}
    system, root = fsspec.url_to_fs(uri, **options)
    return system, str(root)


def _find_files(system: Any, root: str, recursive: bool) -> Mapping[str, Mapping[str, Any]]:
    """The facts about every file, by path. Raises FileNotFoundError if the root does not exist."""
    # Drivers cache earlier listings, and most leave out a folder that fails: either would delete documents.
    system.invalidate_cache()
    kind = type(system)
    if issubclass(kind, AsyncFileSystem):
        has_default_find = kind._find is AsyncFileSystem._find
    else:
        has_default_find = kind.find is fsspec.AbstractFileSystem.find
    # fsspec's own `find` passes `on_error` on; S3's lists by prefix, and raises errors itself
    strict = {"on_error": "raise"} if has_default_find else {}
    files: dict[str, dict[str, Any]] = system.find(root, maxdepth=None if recursive else 1, detail=True, **strict)
    if not files and not system.exists(root):
        raise FileNotFoundError(root)
    return files


def _relative_path(path: str, root: str) -> str:
    """The path below the root; empty for the root itself."""
    return path.removeprefix(root).removeprefix("/")


def _first_value(facts: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((facts[key] for key in keys if facts.get(key)), None)


def _to_nanoseconds(moment: datetime | str | float | None) -> int:
    match moment:
        case datetime():
            return int(moment.timestamp() * 1e9)
        case str():
            return int(datetime.fromisoformat(moment).timestamp() * 1e9)
        case None:
            return 0
        case seconds:
            return int(seconds * 1e9)
