"""Decompression of containers to a temporary file, in which members can be found again."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from tempfile import SpooledTemporaryFile

from rag_core.ingestion.containers.container import (
    MAX_FILE_BYTES,
    Budget,
    damage_error,
    file_size_error,
    temporary_file_error,
)
from rag_core.ingestion.containers.seven_zip import read_as_tar
from rag_core.ingestion.containers.source_file import BLOCK_BYTES, SourceFile

_MAX_MEMORY_BYTES = 16 << 20
"""Larger contents go to the disk."""
_XZ_MEMORY = 256 << 20
_MAGIC = {"gz": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ\0", "7z": b"7z\xbc\xaf\x27\x1c"}
_ERRORS = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)


def is_compressed_with(file: SourceFile, compression: str) -> bool:
    magic = _MAGIC[compression]
    is_match = file.read(len(magic)) == magic
    file.seek(0)
    return is_match


def decompress_file(file: SourceFile, compression: str, budget: Budget) -> SourceFile:
    """Raises DocumentError if the file is damaged, incomplete or too large."""
    spool = SpooledTemporaryFile(_MAX_MEMORY_BYTES)  # noqa: SIM115 - SourceFile closes it
    content, size = SourceFile(spool, temporary_file_error), 0
    with closing(_read_blocks(file, compression)) as blocks:  # a child process can be behind it
        for block in blocks:
            budget.spend_bytes(len(block))
            size += len(block)
            if size > MAX_FILE_BYTES:
                raise file_size_error()
            try:
                spool.write(block)
            except OSError as error:
                raise temporary_file_error(error) from error
    spool.seek(0)
    return content


def _read_blocks(file: SourceFile, compression: str) -> Generator[bytes, None, None]:
    try:
        if compression == "xz":
            yield from _read_xz(file)
        elif compression == "7z":
            yield from read_as_tar(file)
        else:
            with gzip.GzipFile(fileobj=file) if compression == "gz" else bz2.BZ2File(file) as reader:
                while block := reader.read(BLOCK_BYTES):
                    yield block
    except _ERRORS as error:
        raise damage_error(error) from error


def _read_xz(file: SourceFile) -> Iterator[bytes]:
    """Decompresses the streams of the file. LZMAFile has no limit for the memory that a header can ask for."""
    compressed = file.read(BLOCK_BYTES)
    while compressed:
        decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)
        while not decompressor.eof:
            if decompressor.needs_input and not compressed and not (compressed := file.read(BLOCK_BYTES)):
                raise EOFError("it ends too early")
            yield decompressor.decompress(compressed, BLOCK_BYTES)
            compressed = b""
        compressed = decompressor.unused_data.lstrip(b"\0") or file.read(BLOCK_BYTES).lstrip(b"\0")
