"""Zip archives from outside, opened only within limits: DOCX, PPTX, XLSX, OpenDocument, EPUB."""

import lzma
import struct
import zlib
from io import BytesIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from rag_core.errors import DocumentError

MAX_UNCOMPRESSED_MB = 500

_MAX_ENTRIES = 10_000
_MAX_RATIO = 200
_RATIO_MIN_BYTES = 10_000_000
"""Smaller entries can have any compression ratio."""
_BLOCK_BYTES = 1 << 20
_ENCRYPTED_FLAG = 0x1
_ENTRY, _END_OF_DIRECTORY = b"PK\x03\x04", b"PK\x05\x06"
_OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# An encrypted DOCX, XLSX or PPTX is not a zip, but an old Office file with this stream
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
READ_ERRORS = (
    BadZipFile,
    NotImplementedError,
    OSError,
    EOFError,
    ValueError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
)


class Archive:
    """Reads entries up to a limit on their total size. The sizes in the archive's directory are not trusted."""

    def __init__(self, file: ZipFile, limit_mb: float) -> None:
        self._file, self._limit_mb, self._bytes_left = file, limit_mb, int(limit_mb * 1e6)
        self.names = tuple(entry.filename for entry in file.infolist() if not entry.is_dir())
        self._name_set = frozenset(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._name_set

    def read(self, name: str) -> bytes:
        """Raises DocumentError if there is no such entry, if it is damaged, or if it exceeds the limit."""
        if name not in self:
            raise DocumentError("parse", f"damaged archive: no {name}")
        content = bytearray()
        try:
            with self._file.open(name) as entry:
                while block := entry.read(_BLOCK_BYTES):
                    content += block
                    self._bytes_left -= len(block)
                    if self._bytes_left < 0:
                        raise _size_error(self._limit_mb)
        except READ_ERRORS as error:
            raise DocumentError("parse", f"damaged archive: {error}") from error
        return bytes(content)

    def repack(self, suffixes: tuple[str, ...]) -> bytes:
        """An uncompressed zip of the entries with these suffixes, for readers that trust the sizes in a zip."""
        out = BytesIO()
        with ZipFile(out, "w", ZIP_STORED) as file:
            for name in sorted(self._name_set):
                if name.lower().endswith(suffixes):
                    file.writestr(ZipInfo(name), self.read(name))
        return out.getvalue()


def open_archive(body: bytes, limit_mb: float = MAX_UNCOMPRESSED_MB) -> Archive:
    """Raises DocumentError if the body is not a zip, is encrypted, or would exceed the limits."""
    if not body:
        raise DocumentError("parse", "empty", status="skipped")
    if body.startswith(_OLE_MAGIC):
        is_encrypted = _ENCRYPTED_PACKAGE in body
        reason = "password protected" if is_encrypted else "damaged archive: an old Office file, not a zip"
        raise DocumentError("parse", reason)
    if body.startswith(_ENTRY) and _END_OF_DIRECTORY not in body:
        raise DocumentError("parse", "damaged archive: its end is missing; save or copy the file again")
    try:
        file = ZipFile(BytesIO(body))
    except READ_ERRORS as error:
        raise DocumentError("parse", f"damaged archive: {error}") from error
    entries = file.infolist()
    if len(entries) > _MAX_ENTRIES:
        raise DocumentError("parse", f"too large: {len(entries)} archive entries, limit {_MAX_ENTRIES}")
    if any(entry.flag_bits & _ENCRYPTED_FLAG for entry in entries):
        raise DocumentError("parse", "password protected")
    if sum(entry.file_size for entry in entries) > limit_mb * 1e6:
        raise _size_error(limit_mb)
    if any(entry.file_size > max(_RATIO_MIN_BYTES, _MAX_RATIO * entry.compress_size) for entry in entries):
        raise DocumentError("parse", f"too large: an archive entry compressed more than {_MAX_RATIO} times")
    return Archive(file, limit_mb)


def _size_error(limit_mb: float) -> DocumentError:
    return DocumentError("parse", f"too large: more than {limit_mb:g} MB when decompressed")
