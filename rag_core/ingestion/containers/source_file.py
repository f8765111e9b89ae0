"""The file that a container is read from."""

import io
import weakref
from collections.abc import Callable
from typing import IO

from rag_core.errors import DocumentError

BLOCK_BYTES = 1 << 20
MAX_READ = 32 * BLOCK_BYTES
"""The largest single read. The directory of a zip is read at once: this limits the memory that it takes."""


class SourceFile:
    """A file for the standard library's readers of archives. It closes the file when it is no longer used.

    Failures of the file itself, such as a lost connection, become DocumentErrors: they say nothing about its content.
    """

    def __init__(self, file: IO[bytes], translate_error: Callable[[Exception], DocumentError]) -> None:
        self._file, self._translate_error = file, translate_error
        weakref.finalize(self, file.close)

    def read(self, size: int = -1) -> bytes:
        if size > MAX_READ:
            raise _size_error()
        try:
            content = self._file.read(MAX_READ + 1 if size < 0 else size)
        except Exception as error:
            raise self._translate_error(error) from error
        if len(content) > MAX_READ:
            raise _size_error()
        return content

    def readline(self, size: int) -> bytes:
        try:
            return self._file.readline(size)
        except Exception as error:
            raise self._translate_error(error) from error

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seeking reads nothing, so its errors are those of a wrong offset in the archive."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True


def _size_error() -> DocumentError:
    return DocumentError("read", f"too large: a directory of more than {MAX_READ >> 20} MiB in an archive")
