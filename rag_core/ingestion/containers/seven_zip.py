"""7z archives, read by libarchive in a child process: its C code gets untrusted bytes, so it gets nothing else."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from rag_core.errors import DocumentError
from rag_core.ingestion.containers import seven_zip_child
from rag_core.ingestion.containers.container import MAX_FILE_BYTES, damage_error, file_size_error, temporary_file_error
from rag_core.ingestion.containers.source_file import BLOCK_BYTES, SourceFile

LIBRARIES = ("libarchive.so.13", "libarchive.so", "libarchive.dylib")
_ENVIRONMENT = ("LD_LIBRARY_PATH", "PATH")
_ENCRYPTION_WORDS = ("crypto", "encrypt", "passphrase")


def read_as_tar(file: SourceFile) -> Iterator[bytes]:
    """Yields the blocks of a tar archive with the files of the 7z archive.

    Raises DocumentError if that is damaged or encrypted, or if libarchive is not installed.
    """
    with TemporaryFile() as archive, TemporaryFile() as errors:
        try:
            _copy_file(file, archive)
            process = subprocess.Popen(  # noqa: S603 - this interpreter
                [sys.executable, "-I", "-S", str(Path(seven_zip_child.__file__)), *LIBRARIES],
                stdin=archive,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | {"LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            raise temporary_file_error(error) from error
        with process:
            try:
                while process.stdout and (block := process.stdout.read(BLOCK_BYTES)):
                    yield block
            except BaseException:
                process.kill()  # nobody reads its output any more
                raise
        errors.seek(0)
        _check_exit(process.returncode, errors.read(1000).decode("utf-8", "replace"))


def _copy_file(source: SourceFile, target: IO[bytes]) -> None:
    """Copies the archive to a file that the child can seek in."""
    while block := source.read(BLOCK_BYTES):
        target.write(block)
        if target.tell() > MAX_FILE_BYTES:
            raise file_size_error()
    target.seek(0)


def _check_exit(status: int, reason: str) -> None:
    """Raises DocumentError unless the child has read the whole archive."""
    if status == seven_zip_child.NO_LIBRARY:
        raise DocumentError(
            "read",
            "unsupported: .7z needs libarchive; install libarchive13 with your package manager",
            status="skipped",
        )
    if any(word in reason.lower() for word in _ENCRYPTION_WORDS):
        raise DocumentError("read", "password protected")
    if status:
        raise damage_error(reason.strip() or f"its reader ended with status {status}")
