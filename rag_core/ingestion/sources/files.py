"""Files as a source, local or remote."""

from collections.abc import Iterator
from dataclasses import dataclass

from rag_core.errors import DocumentError
from rag_core.ingestion.sources.globs import Globs
from rag_core.ingestion.sources.local import LocalTree, local_uri
from rag_core.ingestion.sources.remote import RemoteTree, remote_uri
from rag_core.types import Entry


@dataclass(frozen=True, slots=True)
class FilesSource:
    """The files below `uri` that the globs take, sorted within each folder; or the one file that it names.

    A link is followed to a file inside the root, never out of it, and never to a folder. Which file a glob takes
    is told in `globs.py`. What is no regular file, such as a pipe, or a link that leads to itself is listed, and
    `read` refuses it: skipped, with its reason.
    """

    uri: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    recursive: bool
    file_mb: float

    @staticmethod
    def open(
        location: str, include: tuple[str, ...], exclude: tuple[str, ...], recursive: bool, file_mb: float
    ) -> "FilesSource":
        """A path, a `~` path, a `file://` uri or any uri that fsspec knows.

        SourceError if nothing is there, ConfigError if a glob is none.
        """
        Globs.of(include, exclude)
        local = "://" not in location or location.startswith("file://")
        uri = local_uri(location) if local else remote_uri(location)
        return FilesSource(uri, include, exclude, recursive, file_mb)

    def listing(self) -> Iterator[Entry]:
        return self._tree.entries(Globs.of(self.include, self.exclude), self.recursive)

    def read(self, entry: Entry) -> bytes:
        """The bytes as they are stored: compressed ones stay so."""
        if entry.uri != self.uri and not entry.uri.startswith(self.uri.rstrip("/") + "/"):
            raise DocumentError("read", "leads out of its source")
        limit = int(self.file_mb * 1e6)
        self._refuse_above(limit, entry.size)
        body = self._tree.body(entry, limit)
        self._refuse_above(limit, len(body))
        return body

    @property
    def _tree(self) -> LocalTree | RemoteTree:
        return LocalTree(self.uri) if self.uri.startswith("file://") else RemoteTree(self.uri)

    def _refuse_above(self, limit: int, size: int) -> None:
        if size > limit:
            raise DocumentError("read", f"too large: {size / 1e6:.1f} MB or more, limit {self.file_mb:g} MB")
