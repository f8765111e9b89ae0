"""What the formats of containers have in common: members, and limits against archive bombs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rag_core.errors import DocumentError, TransientError

MAX_MEMBERS = 100_000
MAX_RATIO = 200
RATIO_MIN_BYTES = 100_000_000
"""Smaller contents can have any compression ratio."""
MAX_FILE_BYTES = 4_000_000_000
"""The largest temporary file."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file in a container. Members with the same size and etag have the same bytes."""

    size: int
    etag: str


class Container(Protocol):
    """An open container. `members` are by path, in the order of the container. Threads can share it."""

    @property
    def members(self) -> Mapping[str, Member]: ...

    def read(self, path: str, limit: int) -> bytes:
        """Returns at most limit + 1 bytes. Raises DocumentError if the member is damaged or encrypted."""
        ...


class Budget:
    """The members and the bytes that a file and all containers inside it can still have together."""

    def __init__(self, max_bytes: float) -> None:
        self._members_left = MAX_MEMBERS
        self._max_bytes = self._bytes_left = max_bytes

    @staticmethod
    def for_file(size: int) -> "Budget":
        return Budget(max(RATIO_MIN_BYTES, MAX_RATIO * size))

    def spend_member(self) -> None:
        """Raises DocumentError if there are too many members."""
        self._members_left -= 1
        if self._members_left < 0:
            raise DocumentError("read", f"too large: more than {MAX_MEMBERS} files in an archive")

    def spend_bytes(self, count: int) -> None:
        """Raises DocumentError if the content is too large for the size of the file."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise DocumentError("read", f"too large: more than {self._max_bytes / 1e6:.0f} MB when decompressed")


def damage_error(reason: object) -> DocumentError:
    return DocumentError("read", f"damaged archive: {reason}")


def file_size_error() -> DocumentError:
    return DocumentError("read", f"too large: a temporary file of more than {MAX_FILE_BYTES // 10**6} MB")


def temporary_file_error(error: Exception) -> DocumentError:
    return TransientError("read", f"cannot use a temporary file: {error}", True)
