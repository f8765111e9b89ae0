"""Tar archives: ustar, GNU and pax.

Only names and sizes are read from headers. `tarfile` would also read sparse maps, links and owners, and takes an
archive that breaks off for a complete one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from tarfile import (
    AREGTYPE,
    BLKTYPE,
    BLOCKSIZE,
    CHRTYPE,
    CONTTYPE,
    DIRTYPE,
    FIFOTYPE,
    GNUTYPE_LONGLINK,
    GNUTYPE_LONGNAME,
    GNUTYPE_SPARSE,
    LNKTYPE,
    REGTYPE,
    SOLARIS_XHDTYPE,
    SYMTYPE,
    XGLTYPE,
    XHDTYPE,
    HeaderError,
    TarInfo,
)

from rag_core.errors import DocumentError
from rag_core.ingestion.containers.container import Budget, damage_error
from rag_core.ingestion.containers.source_file import BLOCK_BYTES, SourceFile
from rag_core.ingestion.containers.spans import Span, SpanContainer, hash_bytes

_FILES = (REGTYPE, AREGTYPE, CONTTYPE)
_PAX, _IGNORED_HEADERS = (XHDTYPE, SOLARIS_XHDTYPE), (GNUTYPE_LONGLINK, XGLTYPE)
_WITHOUT_CONTENT = (LNKTYPE, SYMTYPE, CHRTYPE, BLKTYPE, DIRTYPE, FIFOTYPE)
_MAX_NAME_BYTES = 4096
"""Longer names are cut: 100,000 of them have to fit into memory."""


@dataclass(frozen=True, slots=True)
class _Header:
    """`start` is the offset of the member's bytes."""

    type: bytes
    name: str
    start: int
    size: int


def open_tar(file: SourceFile, budget: Budget) -> SpanContainer | None:
    """None if it is not a tar archive. Raises DocumentError if it is damaged, incomplete or too large."""
    block = file.read(BLOCKSIZE)
    if not block.strip(b"\0"):
        raise DocumentError("read", "an empty archive", status="skipped")
    try:
        TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except HeaderError:
        return None
    file.seek(0)
    spans = [_hash_member(file, header) for header in _read_files(file, budget)]
    return SpanContainer(file, spans)


def _read_files(file: SourceFile, budget: Budget) -> Iterator[_Header]:
    """Yields the headers of regular files. Links, devices and folders are left out."""
    name, size = "", -1
    while header := _read_header(file):
        if header.type in _PAX:
            name, size = _read_pax(_read_extension(file, header), name, size)
        elif header.type == GNUTYPE_LONGNAME:
            name = _decode(_read_extension(file, header).partition(b"\0")[0])
        elif header.type not in _IGNORED_HEADERS:
            budget.spend_member()
            if header.type not in _WITHOUT_CONTENT and size >= 0:
                header = replace(header, size=size)
            if header.type in _FILES:
                budget.spend_bytes(header.size)
                yield replace(header, name=name or header.name)
            name, size = "", -1
        file.seek(header.start + -(-header.size // BLOCKSIZE) * BLOCKSIZE)


def _read_header(file: SourceFile) -> _Header | None:
    """The header at the present position; None at the end of the archive."""
    block = file.read(BLOCKSIZE)
    if len(block) < BLOCKSIZE:
        raise damage_error("its end is missing")
    if not block.strip(b"\0"):
        return None
    try:
        info = TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except HeaderError as error:
        raise damage_error(error) from error
    if info.type == GNUTYPE_SPARSE:
        raise _sparse_error()
    size = 0 if info.type in _WITHOUT_CONTENT else info.size
    if size < 0:
        raise damage_error("a negative size")
    return _Header(info.type, info.name, file.tell(), size)


def _read_extension(file: SourceFile, header: _Header) -> bytes:
    """The content of a header that extends the next one."""
    if header.size > BLOCK_BYTES:
        raise damage_error("a header of more than 1 MiB")
    return file.read(header.size)


def _read_pax(records: bytes, name: str, size: int) -> tuple[str, int]:
    """The name and the size after these pax records, such as `17 path=keys.md\\n`."""
    position = 0
    while position < len(records) and records[position]:
        space = records.find(b" ", position, position + 20)
        try:
            end = position + int(records[position:space])
            key, equals, value = records[space + 1 : end - 1].partition(b"=")
            if not (equals and position < end <= len(records)):
                raise ValueError("a pax record of the wrong length")
            if key.startswith(b"GNU.sparse"):
                raise _sparse_error()
            if key == b"path":
                name = _decode(value)
            elif key == b"size":
                size = max(0, int(value))
        except ValueError as error:
            raise damage_error(error) from error
        position = end
    return name, size


def _sparse_error() -> DocumentError:
    return DocumentError("read", "unsupported: a tar archive with sparse files", status="skipped")


def _decode(name: bytes) -> str:
    return name[:_MAX_NAME_BYTES].decode("utf-8", "surrogateescape")


def _hash_member(file: SourceFile, header: _Header) -> Span:
    """The span of a member; the file's position is then after its bytes."""
    file.seek(header.start)
    digest, remaining = hash_bytes(), header.size
    while remaining:
        block = file.read(min(remaining, BLOCK_BYTES))
        if not block:
            raise damage_error("it ends too early")
        digest.update(block)
        remaining -= len(block)
    return Span(header.name, header.start, header.size, digest.hexdigest())
