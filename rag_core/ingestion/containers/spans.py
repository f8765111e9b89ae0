"""Containers whose members are spans of one file: tar archives and mailboxes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock

from rag_core.errors import DocumentError
from rag_core.ingestion.containers.container import Member, damage_error
from rag_core.ingestion.containers.member_paths import assign_paths
from rag_core.ingestion.containers.source_file import BLOCK_BYTES, SourceFile


@dataclass(frozen=True, slots=True)
class Span:
    """A member's name, its first byte in the file, its size, and a hash of its bytes."""

    name: str
    start: int
    size: int
    etag: str


def hash_bytes(content: bytes | bytearray = b"") -> blake2b:
    """The hash whose hexadecimal digest is the etag of a span."""
    return blake2b(content, digest_size=16)


class SpanContainer:
    """`decode` turns the stored bytes of a member into those of the document."""

    def __init__(self, file: SourceFile, spans: Iterable[Span], decode: Callable[[bytes], bytes] = bytes) -> None:
        self._file, self._decode, self._lock = file, decode, Lock()
        by_name = {span.name: span for span in spans}  # the last one of a name, as when it is unpacked
        self._spans = {path: by_name[name] for path, name in assign_paths(by_name).items()}
        self.members = {path: Member(span.size, span.etag) for path, span in self._spans.items()}

    def read(self, path: str, limit: int) -> bytes:
        span = self._spans[path]
        size, content = min(span.size, limit + 1), bytearray()
        with self._lock:
            self._file.seek(span.start)
            while len(content) < size:
                block = self._file.read(min(size - len(content), BLOCK_BYTES))
                if not block:
                    raise damage_error("it ends too early")
                content += block
        if size == span.size and hash_bytes(content).hexdigest() != span.etag:
            raise DocumentError("read", "changed while it was read", True)
        return self._decode(bytes(content))
