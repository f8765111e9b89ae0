"""Zip archives from outside, opened only within limits: DOCX, PPTX, XLSX, OpenDocument, EPUB."""

import lzma
import struct
import zlib
from io import BytesIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from rag_core.errors import DocumentError

UNCOMPRESSED_MB = 500

_MOST_ENTRIES = 10_000
_HIGHEST_RATIO = 200
_RATIO_COUNTS_FROM = 10_000_000
_STEP = 1 << 20
_ENCRYPTED = 0x1
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# An encrypted DOCX, XLSX or PPTX is no zip, but an old Office file with this stream
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
_DAMAGES = (BadZipFile, NotImplementedError, OSError, EOFError, ValueError, struct.error, zlib.error, lzma.LZMAError)


class Archive:
    """Reads its entries until they come to the limit in sum, whatever the archive's directory says of their sizes."""

    def __init__(self, file: ZipFile, limit_mb: float) -> None:
        self._file, self._limit_mb, self._left = file, limit_mb, int(limit_mb * 1e6)
        self.names = tuple(entry.filename for entry in file.infolist() if not entry.is_dir())
        self._known = frozenset(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def read(self, name: str) -> bytes:
        """DocumentError if there is no such entry, or it is damaged."""
        if name not in self:
            raise DocumentError("parse", f"damaged archive: no {name}")
        try:
            return self._counted(name)
        except _DAMAGES as error:
            raise DocumentError("parse", f"damaged archive: {error}") from error

    def repacked(self, suffixes: tuple[str, ...]) -> bytes:
        """A plain zip of the entries so named, for readers that trust what a zip says of its sizes."""
        out = BytesIO()
        with ZipFile(out, "w", ZIP_STORED) as file:
            for name in sorted(self._known):
                if name.lower().endswith(suffixes):
                    file.writestr(ZipInfo(name), self.read(name))
        return out.getvalue()

    def _counted(self, name: str) -> bytes:
        out = bytearray()
        with self._file.open(name) as entry:
            while piece := entry.read(_STEP):
                out += piece
                self._left -= len(piece)
                if self._left < 0:
                    raise _too_large(self._limit_mb)
        return bytes(out)


def opened(body: bytes, limit_mb: float = UNCOMPRESSED_MB) -> Archive:
    """DocumentError for what is no zip, is encrypted, or would grow beyond its limits."""
    if not body:
        raise DocumentError("parse", "empty", status="skipped")
    if body.startswith(_OLD_OFFICE):
        old = "password protected" if _ENCRYPTED_PACKAGE in body else "damaged archive: an old Office file, no zip"
        raise DocumentError("parse", old)
    try:
        file = ZipFile(BytesIO(body))
    except _DAMAGES as error:
        raise DocumentError("parse", f"damaged archive: {error}") from error
    _refuse(file.infolist(), limit_mb)
    return Archive(file, limit_mb)


def _refuse(entries: list[ZipInfo], limit_mb: float) -> None:
    if len(entries) > _MOST_ENTRIES:
        raise DocumentError("parse", f"too large: {len(entries)} archive entries, limit {_MOST_ENTRIES}")
    if any(entry.flag_bits & _ENCRYPTED for entry in entries):
        raise DocumentError("parse", "password protected")
    if sum(entry.file_size for entry in entries) > limit_mb * 1e6:
        raise _too_large(limit_mb)
    for entry in entries:
        if entry.file_size > max(_RATIO_COUNTS_FROM, _HIGHEST_RATIO * entry.compress_size):
            raise DocumentError("parse", f"too large: an archive entry compressed more than {_HIGHEST_RATIO} times")


def _too_large(limit_mb: float) -> DocumentError:
    return DocumentError("parse", f"too large: more than {limit_mb:g} MB when decompressed")
