"""A folder, or one file, of the local disk."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter
from typing import BinaryIO
from urllib.parse import quote_from_bytes, unquote_to_bytes

from rag_core.errors import DocumentError, ListingError, SourceError, TransientError
from rag_core.ingestion.containers.source_file import SourceFile
from rag_core.ingestion.sources.access_files import MAX_BYTES, SUFFIX, AccessFiles, Groups, is_access_file
from rag_core.ingestion.sources.globs import Globs
from rag_core.types import Entry, clamp_ns

_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class LocalTree:
    uri: str

    def list_entries(self, globs: Globs, recursive: bool) -> Iterator[Entry]:
        root = path_from_uri(self.uri)
        try:
            facts = os.stat(root)
            if stat.S_ISREG(facts.st_mode):
                folder, name = os.path.split(root)
                access = AccessFiles(partial(_read_access_file, folder))
                access.add(path for path in (SUFFIX, name + SUFFIX) if os.path.lexists(os.path.join(folder, path)))
                if not is_access_file(name):
                    yield _entry_from_stat(self.uri, facts, access.find_groups(name))
            else:
                access = AccessFiles(partial(_read_access_file, root))
                walk = _Walk(root, os.path.realpath(root), globs, recursive, access)
                yield from walk.list_entries(root, self.uri, "")
        except OSError as error:
            raise ListingError(f"{root!r} cannot be listed completely: {error}") from error

    def read(self, entry: Entry, limit: int) -> bytes:
        """Returns at most limit + 1 bytes."""
        try:
            with _open_file(path_from_uri(entry.uri), path_from_uri(self.uri)) as file:
                size = os.fstat(file.fileno()).st_size
                body = file.read(min(size, limit) + 1)  # no buffer of the limit's size, which is large
                return body if len(body) <= size else body + file.read(limit + 1 - len(body))
        except OSError as error:
            raise _translate_error(error) from error

    def open(self, uri: str) -> SourceFile:
        try:
            return SourceFile(_open_file(path_from_uri(uri), path_from_uri(self.uri)), _translate_error)
        except OSError as error:
            raise _translate_error(error) from error


def local_uri(location: str) -> str:
    """The absolute `file://` uri of an existing path, `~` path or `file://` uri. Raises SourceError for any other."""
    if not location:
        raise SourceError("a source must be a path or a URI, got ''")
    path = os.path.abspath(path_from_uri(location) if location.startswith("file://") else os.path.expanduser(location))
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise SourceError(f"{path!r} cannot be used as a source: {error}; give an existing file or folder") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise SourceError(f"{path!r} is neither a folder nor a regular file")
    return _join_uri("file://", path)


def path_from_uri(uri: str) -> str:
    """The path of a `file://` uri, with exactly the bytes that the uri was made from."""
    host, slash, path = uri.removeprefix("file://").partition("/")
    if host not in ("", "localhost"):
        raise SourceError(f"{uri} is a file on another host")
    return os.fsdecode(unquote_to_bytes(slash + path))


@dataclass(frozen=True, slots=True)
class _Walk:
    """The listing of a tree. `real_root` is the root with all links resolved."""

    root: str
    real_root: str
    globs: Globs
    recursive: bool
    access: AccessFiles

    def list_entries(self, folder: str, uri: str, parent: str) -> Iterator[Entry]:
        """Yields the entries below a folder. `parent` is the folder's path below the root: empty, or ending with /."""
        prefix = uri.rstrip("/")
        with os.scandir(folder) as scan:
            items = sorted(scan, key=attrgetter("name"))
        access_files = {parent + item.name for item in items if is_access_file(item.name)}
        self.access.add(access_files)
        for item in items:
            path = parent + item.name
            if item.is_dir(follow_symlinks=False):
                if self.recursive and not self.globs.excludes_folder(path):
                    yield from self.list_entries(item.path, _join_uri(prefix + "/", item.name), path + "/")
            elif (self.globs.matches(path) or self._links_to_folder(item, path)) and (
                path not in access_files and (facts := self._stat_document(item))
            ):
                yield _entry_from_stat(_join_uri(prefix + "/", item.name), facts, self.access.find_groups(path))

    def _links_to_folder(self, item: "os.DirEntry[str]", path: str) -> bool:
        """True for a link to a folder that would be listed if it were no link."""
        is_folder = self.recursive and item.is_symlink() and os.path.isdir(item.path)
        return is_folder and not self.globs.excludes_folder(path)

    def _stat_document(self, item: "os.DirEntry[str]") -> os.stat_result | None:
        """None for links to folders inside the root, which are not documents.

        Anything else that cannot be read is listed all the same, so that `read` reports the reason.
        """
        if item.is_symlink() and not is_inside(os.path.realpath(item.path), self.real_root):
            return item.stat(follow_symlinks=False)
        # A link to a folder is not followed: its target inside the root is visited at its own path, so every folder
        # is visited once, loops end, and a new link renames no document.
        try:
            facts = item.stat()
        except FileNotFoundError:
            return None  # a file deleted while its folder was read, or a dangling link
        except OSError as error:
            if item.is_symlink():
                return item.stat(follow_symlinks=False)
            raise ListingError(f"{item.path!r} cannot be listed: {error}") from error
        return None if stat.S_ISDIR(facts.st_mode) else facts


def _entry_from_stat(uri: str, facts: os.stat_result, access: Groups | None) -> Entry:
    modified_ns = clamp_ns(facts.st_mtime_ns)
    return Entry(uri=uri, size=facts.st_size, modified_ns=modified_ns, changed_ns=facts.st_ctime_ns, access=access)


def _read_access_file(root: str, path: str) -> bytes:
    with _open_file(os.path.join(root, path), root) as file:
        return file.read(MAX_BYTES + 1)


def _join_uri(prefix: str, name: str) -> str:
    return prefix + quote_from_bytes(os.fsencode(name))


def is_inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _translate_error(error: Exception) -> DocumentError:
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return DocumentError("read", "deleted after it was listed", True)
        case PermissionError():
            return DocumentError("read", "permission denied")
        case OSError(errno=errno.ELOOP):
            return DocumentError("read", "a symbolic link that refers to itself", status="skipped")
        case OSError(strerror=str(reason)):
            return TransientError("read", reason, True)
        case _:
            return TransientError("read", str(error), True)


def _open_file(path: str, root: str) -> BinaryIO:
    """Opens a regular file inside the root.

    The path is checked on the open file: that takes one system call, which blocks no other thread. Resolving the path
    takes a call for each folder.
    """
    facts = os.lstat(path)  # opening a device can start something, and a socket cannot be opened
    if stat.S_ISLNK(facts.st_mode):
        try:
            path = _resolve_inside(path, root)
        except DocumentError as error:
            raise DocumentError("read", "a symbolic link that leads out of its source", status="skipped") from error
        facts = os.lstat(path)
    _check_regular(facts)
    with ExitStack() as stack:
        file = stack.enter_context(open(os.open(path, _OPEN_FLAGS), "rb"))
        _check_regular(os.fstat(file.fileno()))
        real_path = ""
        with suppress(OSError):  # not every system has /proc
            real_path = os.readlink(f"/proc/self/fd/{file.fileno()}")
        if not is_inside(real_path, _find_real_root(root, os.stat(root).st_ino)):
            _resolve_inside(path, root)
        stack.pop_all()
        return file


def _resolve_inside(path: str, root: str) -> str:
    """Resolves the links of a path. Raises DocumentError if the result is outside the root."""
    resolved = os.path.realpath(path)
    if not is_inside(resolved, os.path.realpath(root)):
        raise DocumentError("read", "it is outside its source")
    return resolved


@lru_cache(maxsize=64)
def _find_real_root(root: str, _inode: int) -> str:
    """The root with all links resolved. If the folder has been moved since, `_resolve_inside` decides instead."""
    return os.path.realpath(root)


def _check_regular(facts: os.stat_result) -> None:
    """Raises DocumentError unless it is a regular file or a link."""
    if not (stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode)):
        raise DocumentError("read", "not a regular file", status="skipped")
