"""A file of given documents, one JSON object per line, as a source."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from urllib.parse import quote

from rag_core.errors import DocumentError, SourceError
from rag_core.ingestion.containers.source_file import MAX_READ, SourceFile
from rag_core.ingestion.given_documents import decode_given
from rag_core.ingestion.sources.files import FilesSource
from rag_core.storage.queue import JSON_LINES_SCHEME
from rag_core.types import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The position of a line in bytes, and the hash of its content. `defect` is a reason why it is not a document."""

    number: int
    offset: int
    size: int
    hash: str
    defect: str = ""


@dataclass(frozen=True, slots=True)
class JsonLinesSource:
    """The lines of a file, each a document with a uri such as `jsonl:file:///srv/docs.jsonl#keys`.

    An unchanged line is not read again, even if it has moved. A line that is not a document fails alone.
    """

    file: FilesSource
    lines: Mapping[str, Line]

    @staticmethod
    def open(file: FilesSource) -> "JsonLinesSource":
        """Reads the whole file. Raises SourceError if it cannot be read or is not a single uncompressed file."""
        uri = JSON_LINES_SCHEME + file.uri
        if [entry.uri for entry in file.listing()] != [file.uri]:
            raise SourceError(f"{uri} must be a single file that is not compressed, with a JSON object on each line")
        lines: dict[str, Line] = {}
        try:
            for line, body in _read_lines(file.open_file()):
                id, defect = _read_id(body, line.number)
                known = lines.get(document_uri(uri, id))
                if known:
                    defect = f"the ids of a file must be distinct; line {known.number} has the id {id!r:.60} too"
                    id = f"line {line.number}"
                lines[document_uri(uri, id)] = Line(
                    number=line.number, offset=line.offset, size=line.size, hash=line.hash, defect=defect
                )
        except DocumentError as error:
            raise SourceError(f"{uri} cannot be read: {error.reason}") from error
        return JsonLinesSource(file, lines)

    @property
    def uri(self) -> str:
        return JSON_LINES_SCHEME + self.file.uri

    def listing(self) -> Iterator[Entry]:
        """Yields every line with its hash as etag, and no times. An access file is for all lines."""
        access = next((entry.access for entry in self.file.listing()), None)
        for uri, line in self.lines.items():
            yield Entry(uri=uri, size=line.size, modified_ns=0, etag=line.hash, access=access)

    def read(self, entry: Entry) -> bytes:
        line = self.lines[entry.uri]
        if line.defect:
            raise DocumentError("read", line.defect)
        file = self.file.open_file()
        file.seek(line.offset)
        body = file.read(line.size)
        if _hash(body) != line.hash:
            raise DocumentError("read", "changed after it was listed", True)
        return body


def document_uri(source: str, id: str) -> str:
    return f"{source}#{quote(id, safe='')}"


def _read_lines(file: SourceFile) -> Iterator[tuple[Line, bytes]]:
    """Yields the lines that are not blank."""
    offset = number = 0
    while body := file.readline(MAX_READ):
        number += 1
        if body.strip():
            yield Line(number=number, offset=offset, size=len(body), hash=_hash(body)), body
        offset += len(body)


def _read_id(body: bytes, number: int) -> tuple[str, str]:
    """The id of the document on the line, and what is wrong with it."""
    try:
        return decode_given(body).name, ""
    except DocumentError as error:
        return f"line {number}", f"line {number}: {error.reason}"


def _hash(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()
