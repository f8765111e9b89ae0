"""A folder, or one file, of the local disk."""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote_from_bytes, unquote_to_bytes

from rag_core.errors import DocumentError, ListingError, SourceError, TransientError
from rag_core.ingestion.sources.globs import Globs
from rag_core.types import Entry, clamp_ns

_UNTIL_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class LocalTree:
    uri: str

    def entries(self, globs: Globs, recursive: bool) -> Iterator[Entry]:
        root = path_of(self.uri)
        try:
            if stat.S_ISREG(os.stat(root).st_mode):
                yield _entry(self.uri, os.stat(root))
            else:
                yield from _Walk(root, os.path.realpath(root), globs, recursive).entries(root, self.uri, "")
        except OSError as error:
            raise ListingError(f"{root!r} cannot be listed to its end: {error}") from error

    def body(self, entry: Entry, limit: int) -> bytes:
        """At most limit + 1 bytes."""
        try:
            return _content(path_of(entry.uri), path_of(self.uri), limit)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise DocumentError("read", "gone since it was listed", True) from error
        except PermissionError as error:
            raise DocumentError("read", "permission denied") from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise DocumentError("read", "a link that leads to itself", status="skipped") from error
            raise TransientError("read", error.strerror or str(error), True) from error


def local_uri(location: str) -> str:
    """The absolute `file://` uri of a path, `~` path or `file://` uri that exists."""
    if not location:
        raise SourceError("a source must be a path or an URI, got ''")
    path = os.path.abspath(path_of(location) if location.startswith("file://") else os.path.expanduser(location))
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise SourceError(f"{path!r} cannot be used as a source: {error}") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise SourceError(f"{path!r} is neither a folder nor a regular file")
    return _uri("file://", path)


def path_of(uri: str) -> str:
    """Gives back the very bytes that the uri was made of."""
    host, slash, path = uri.removeprefix("file://").partition("/")
    if host not in ("", "localhost"):
        raise SourceError(f"{uri} names a file of another host")
    return os.fsdecode(unquote_to_bytes(slash + path))


@dataclass(frozen=True, slots=True)
class _Walk:
    root: str
    real_root: str
    globs: Globs
    recursive: bool

    def entries(self, folder: str, uri: str, below: str) -> Iterator[Entry]:
        prefix = uri.rstrip("/")
        with os.scandir(folder) as scan:
            found = sorted(scan, key=_by_name)
        for each in found:
            path = below + each.name
            if each.is_dir(follow_symlinks=False):
                if self.recursive and not self.globs.prune(path):
                    yield from self.entries(each.path, _uri(prefix + "/", each.name), path + "/")
            elif self.globs.match(path) and (facts := self._facts(each)):
                yield _entry(_uri(prefix + "/", each.name), facts)

    def _facts(self, each: "os.DirEntry[str]") -> os.stat_result | None:
        """None for what is no document: links to folders and out of the root. What else cannot be read is listed, so
        that `body` says why."""
        # A link to a folder is not followed: its target inside the root is visited at its own path, so every folder
        # is visited once, loops end, and a new link renames no document.
        if each.is_symlink() and not _inside(os.path.realpath(each.path), self.real_root):
            return None
        try:
            facts = each.stat()
        except FileNotFoundError:
            return None  # a file deleted while its folder was read, or a dangling link
        except OSError as error:
            if each.is_symlink():
                return each.stat(follow_symlinks=False)
            raise ListingError(f"{each.path!r} cannot be listed: {error}") from error
        return None if stat.S_ISDIR(facts.st_mode) else facts


def _by_name(each: "os.DirEntry[str]") -> str:
    return each.name


def _entry(uri: str, facts: os.stat_result) -> Entry:
    modified_ns = clamp_ns(facts.st_mtime_ns)
    return Entry(uri=uri, size=facts.st_size, modified_ns=modified_ns, changed_ns=facts.st_ctime_ns)


def _uri(prefix: str, name: str) -> str:
    return prefix + quote_from_bytes(os.fsencode(name))


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _content(path: str, root: str, limit: int) -> bytes:
    """Where it lies is asked of the open file: that is one system call, for which no other thread has to wait, where to
    resolve a path takes one for each folder."""
    facts = os.lstat(path)  # to open a device may set something going, and a socket cannot be opened
    if stat.S_ISLNK(facts.st_mode):
        path = _resolved(path, root)
        facts = os.lstat(path)
    _refuse_irregular(facts)
    with open(os.open(path, _UNTIL_READ), "rb") as file:
        facts = os.fstat(file.fileno())
        _refuse_irregular(facts)
        if not _inside(_opened(file.fileno()), _real_root(root, os.stat(root).st_ino)):
            _resolved(path, root)
        body = file.read(min(facts.st_size, limit) + 1)  # not room for the limit, which is large
        return body if len(body) <= facts.st_size else body + file.read(limit + 1 - len(body))


def _resolved(path: str, root: str) -> str:
    resolved = os.path.realpath(path)
    if not _inside(resolved, os.path.realpath(root)):
        raise DocumentError("read", "leads out of its source")
    return resolved


def _opened(descriptor: int) -> str:
    """The real path of the file, where the system tells."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


@lru_cache(maxsize=64)
def _real_root(root: str, _inode: int) -> str:
    """A hint: whoever moved the folder meanwhile is asked about by `_resolved`."""
    return os.path.realpath(root)


def _refuse_irregular(facts: os.stat_result) -> None:
    if not (stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode)):
        raise DocumentError("read", "no regular file", status="skipped")
