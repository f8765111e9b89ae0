"""The files in containers, listed and read like the files in folders."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from math import inf
from typing import TypeAlias
from urllib.parse import unquote_to_bytes

from rag_core.errors import DocumentError
from rag_core.ingestion.containers.container import Budget, Container, Member, damage_error
from rag_core.ingestion.containers.open_containers import OpenContainers
from rag_core.ingestion.containers.opening import open_container
from rag_core.ingestion.containers.source_file import SourceFile
from rag_core.ingestion.containers.uris import SEPARATOR, container_uri, enclosing_uris, member_uri
from rag_core.parsing.container_names import container_suffix
from rag_core.types import Entry

MAX_DEPTH = 3
_CHANGED = "changed after it was listed; the next sync reads it"

OpenFile: TypeAlias = Callable[[str], SourceFile]
"""Opens a file of a source by its uri. Raises DocumentError."""


@dataclass(frozen=True, slots=True)
class ContainedFiles:
    """`limit` is the largest size of a container inside another one, in bytes."""

    opened: OpenContainers
    open_file: OpenFile
    limit: int

    def list_members(self, entry: Entry, folder: str, is_excluded: Callable[[str], bool]) -> Iterator[Entry]:
        """Yields the files in a container, including those in containers inside it.

        A container that cannot be opened is yielded itself, so that `read` reports the reason; so is a document with
        the name of a container. `folder` precedes the paths that `is_excluded` gets.
        """
        self.opened.forget(entry.uri)
        yield from self._list_entries(entry, folder, is_excluded, Budget.for_file(entry.size))

    def _list_entries(
        self, entry: Entry, folder: str, is_excluded: Callable[[str], bool], budget: Budget
    ) -> Iterator[Entry]:
        try:
            container = self._open(entry.uri, budget)
        except DocumentError:
            container = None
        if container is None:
            yield entry
            return
        for name, member in container.members.items():
            path = f"{folder}/{name}".removeprefix("/")
            if is_excluded(path):
                continue
            inner = Entry(uri=member_uri(entry.uri, name), size=member.size, modified_ns=0, etag=member.etag)
            if container_suffix(name):
                yield from self._list_entries(inner, path, is_excluded, budget)
            else:
                yield inner

    def check(self, entry: Entry) -> None:
        """Raises DocumentError if the entry is a container, with the reason why it was listed itself."""
        if not container_suffix(entry.uri):
            return
        self.opened.forget(entry.uri)
        if self._open(entry.uri, Budget.for_file(entry.size)) is not None:
            is_inner = bool(container_uri(entry.uri))
            reason = "too large: above the limits for an archive with those inside it" if is_inner else _CHANGED
            raise DocumentError("read", reason, not is_inner)

    def read(self, entry: Entry, limit: int) -> bytes:
        """Returns at most limit + 1 bytes of a member. A container that has changed meanwhile is opened again."""
        uri, name = _split_uri(entry.uri)
        try:
            return self._read_member(uri, name, limit, Member(entry.size, entry.etag))
        except DocumentError:
            if not self.opened.forget_changed(uri):
                raise
        return self._read_member(uri, name, limit)

    def _read_member(self, uri: str, name: str, limit: int, listed: Member | None = None) -> bytes:
        """`listed`: an error is raised if the member is another one now."""
        try:
            container = self._open(uri, Budget(inf))
        except DocumentError as error:  # it could be listed, so it is only being replaced
            raise DocumentError(error.stage, error.reason, True) from error
        if container is None or name not in container.members:
            raise DocumentError("read", "deleted after it was listed", True)
        if listed and container.members[name] != listed:
            raise DocumentError("read", _CHANGED, True)
        return container.read(name, limit)

    def _open(self, uri: str, budget: Budget) -> Container | None:
        with self.opened.lock:
            if uri not in self.opened:
                self.opened.add(uri, open_container(uri, self._open_content(uri, budget), budget))
            return self.opened.get(uri)

    def _open_content(self, uri: str, budget: Budget) -> SourceFile:
        """Opens the file that a container is in: one of the source, or a member of another container."""
        depth = len(list(enclosing_uris(uri)))
        if not depth:
            return self.open_file(uri)
        if depth >= MAX_DEPTH:
            raise DocumentError("read", f"too deep: {depth + 1} archives inside each other, limit {MAX_DEPTH}")
        outer, name = _split_uri(uri)
        container = self._open(outer, budget)
        if container is None or name not in container.members:
            raise DocumentError("read", "deleted after it was listed", True)
        if container.members[name].size > self.limit:
            raise DocumentError("read", f"too large: an archive in an archive, limit {self.limit / 1e6:g} MB")
        return SourceFile(BytesIO(container.read(name, self.limit)), damage_error)


def _split_uri(uri: str) -> tuple[str, str]:
    """The uri of the container and the path in it."""
    container = container_uri(uri)
    return container, os.fsdecode(unquote_to_bytes(uri.removeprefix(container + SEPARATOR)))
