"""Files as a source, local or remote."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from rag_core.errors import DocumentError
from rag_core.ingestion.containers.contained_files import ContainedFiles
from rag_core.ingestion.containers.open_containers import OpenContainers
from rag_core.ingestion.containers.source_file import SourceFile
from rag_core.ingestion.containers.uris import SEPARATOR, container_uri
from rag_core.ingestion.sources.access_files import is_access_file
from rag_core.ingestion.sources.globs import Globs
from rag_core.ingestion.sources.local import LocalTree, local_uri
from rag_core.ingestion.sources.location_rules import LocationRules
from rag_core.ingestion.sources.remote import RemoteTree, remote_uri
from rag_core.parsing.container_names import container_suffix
from rag_core.types import Entry


@dataclass(frozen=True, slots=True)
class FilesSource:
    """The files below `uri` that the globs select, sorted within each folder; or one file, if `uri` is a file.

    Symbolic links are followed to files inside the root, never to files outside or to folders. `globs.py` describes the
    globs. Pipes, sockets, devices, link loops and links out of the root are listed, but `read` refuses them: the
    document is skipped, with the reason.

    A container, such as a zip archive, is listed as its files, with uris such as `docs.zip!/keys.md`. They have the
    groups of the container's access file; `access_files.py` describes those.

    `rules`: a request named the source, so it is checked before each access. None: the operator named it.
    """

    uri: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    recursive: bool
    file_mb: float
    rules: LocationRules | None = None
    containers: OpenContainers = field(default_factory=OpenContainers, repr=False, compare=False)

    @staticmethod
    def open(
        location: str,
        include: tuple[str, ...],
        exclude: tuple[str, ...],
        recursive: bool,
        file_mb: float,
        rules: LocationRules | None = None,
    ) -> "FilesSource":
        """Opens a path, a `~` path, a `file://` uri or any uri that fsspec supports.

        Raises SourceError if it does not exist or breaks the rules, and ConfigError if a glob is invalid.
        """
        Globs.compile(include, exclude)
        if rules:
            rules.check(location)
        local = "://" not in location or location.startswith("file://")
        uri = local_uri(location) if local else remote_uri(location, rules)
        return FilesSource(uri, include, exclude, recursive, file_mb, rules)

    def listing(self) -> Iterator[Entry]:
        tree, globs = self._open_tree(), Globs.compile(self.include, self.exclude)
        for entry in tree.list_entries(globs, self.recursive):
            if container_suffix(entry.uri):
                path = entry.uri.removeprefix(self.uri).strip("/")
                folder = unquote(path) if self.uri.startswith("file://") else path
                for member in self._build_contained_files(tree).list_members(entry, folder, globs.excludes):
                    if not is_access_file(member.uri):
                        yield replace(member, access=entry.access)
            else:
                yield entry

    def read(self, entry: Entry) -> bytes:
        """Returns the bytes as they are stored: compressed files are not decompressed."""
        if entry.uri != self.uri and not entry.uri.startswith((self.uri.rstrip("/") + "/", self.uri + SEPARATOR)):
            raise DocumentError("read", "it is outside its source")
        tree, limit = self._open_tree(), int(self.file_mb * 1e6)
        contained = self._build_contained_files(tree)
        contained.check(entry)
        self._check_size(limit, entry.size)
        body = contained.read(entry, limit) if container_uri(entry.uri) else tree.read(entry, limit)
        self._check_size(limit, len(body))
        return body

    def open_file(self) -> SourceFile:
        """Opens the source's only file for random access. Raises DocumentError if it cannot be read."""
        return self._open_tree().open(self.uri)

    def _build_contained_files(self, tree: LocalTree | RemoteTree) -> ContainedFiles:
        return ContainedFiles(self.containers, tree.open, int(self.file_mb * 1e6))

    def _open_tree(self) -> LocalTree | RemoteTree:
        if self.rules:  # a folder can have become a link since
            self.rules.check(self.uri)
        return LocalTree(self.uri) if self.uri.startswith("file://") else RemoteTree(self.uri, self.rules)

    def _check_size(self, limit: int, size: int) -> None:
        if size > limit:
            raise DocumentError("read", f"too large: {size / 1e6:.1f} MB or more, limit {self.file_mb:g} MB")
