"""Zip archives. Only the directory is read when one is opened."""

import stat
from zipfile import ZipFile, ZipInfo

from rag_core.errors import DocumentError
from rag_core.ingestion.containers.container import Budget, Member, damage_error
from rag_core.ingestion.containers.member_paths import assign_paths
from rag_core.ingestion.containers.source_file import BLOCK_BYTES, SourceFile
from rag_core.parsing.archive import READ_ERRORS

_MAGIC = (b"PK\3\4", b"PK\5\6")
_PACKAGE_PARTS = {"[Content_Types].xml", "mimetype"}
"""Documents that are zips have one of these entries: Office and OpenDocument files, EPUB."""
_ENCRYPTED, _UTF8 = 0x1, 0x800
_ERRORS = (*READ_ERRORS, RuntimeError)


class ZipContainer:
    def __init__(self, archive: ZipFile, budget: Budget) -> None:
        self._archive = archive
        entries: dict[str, ZipInfo] = {}
        for entry in archive.infolist():
            budget.spend_member()
            if entry.filename and not (entry.is_dir() or stat.S_ISLNK(entry.external_attr >> 16)):
                budget.spend_bytes(entry.file_size)
                entries[_decode_name(entry)] = entry  # the last one of a name, as when it is unpacked
        if entries and all(entry.flag_bits & _ENCRYPTED for entry in entries.values()):
            raise DocumentError("read", "password protected")
        self._entries = {path: entries[name] for path, name in assign_paths(entries).items()}
        self.members = {path: Member(entry.file_size, f"{entry.CRC:08x}") for path, entry in self._entries.items()}

    def read(self, path: str, limit: int) -> bytes:
        entry = self._entries[path]
        if entry.flag_bits & _ENCRYPTED:
            raise DocumentError("read", "password protected")
        content = bytearray()
        try:
            with self._archive.open(entry) as file:
                while len(content) <= limit and (block := file.read(BLOCK_BYTES)):
                    content += block
        except _ERRORS as error:
            raise damage_error(error) from error
        return bytes(content[: limit + 1])


def open_zip(file: SourceFile, budget: Budget) -> ZipContainer | None:
    """None if it is no zip, or a document that is a zip. Raises DocumentError if it is damaged or too large."""
    if not file.read(4).startswith(_MAGIC):
        return None
    try:
        archive = ZipFile(file)
    except _ERRORS as error:
        raise damage_error(error) from error
    return None if _PACKAGE_PARTS & set(archive.namelist()) else ZipContainer(archive, budget)


def _decode_name(entry: ZipInfo) -> str:
    """The name of an entry. Many programs write UTF-8 without the flag for it; zipfile then decodes code page 437."""
    if entry.flag_bits & _UTF8 or entry.filename.isascii():
        return entry.filename
    try:
        return entry.filename.encode("cp437").decode()
    except UnicodeError:
        return entry.filename
