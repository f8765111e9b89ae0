"""What this process has read of segments: they are immutable, so it is true for as long as those exist."""

from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from rag_core.storage.lexical.segment import CHUNK_ID
from rag_core.storage.lexical.term_lists import NO_LISTS, TermLists

Key: TypeAlias = tuple[str, int, str]
"""Tenant, collection and term."""


class SegmentChunks:
    """Which chunks a segment numbers."""

    def __init__(self, ids: bytes) -> None:
        """16 bytes each, by local number."""
        self._ids = ids
        unsorted = np.frombuffer(ids, CHUNK_ID)
        order = np.argsort(unsorted)
        self._sorted, self._numbers = unsorted[order], order.astype(np.uint16)

    @property
    def bytes(self) -> int:
        return len(self._ids) + self._sorted.nbytes + self._numbers.nbytes

    def id(self, local: int) -> UUID:
        return UUID(bytes=self._ids[CHUNK_ID.itemsize * local : CHUNK_ID.itemsize * (local + 1)])

    def find(self, wanted: NDArray[np.bytes_]) -> tuple[NDArray[np.intp], NDArray[np.uint16]]:
        """Which of them are here, by their places in `wanted`, and the local number of each."""
        places = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        (here,) = np.nonzero(self._sorted[places] == wanted)
        return here, self._numbers[places[here]]


def wanted_ids(ids: Sequence[UUID]) -> NDArray[np.bytes_]:
    """As `find` takes them."""
    return np.frombuffer(b"".join(id.bytes for id in ids), CHUNK_ID)


class SegmentCache:
    """Posting lists of terms, and the chunks of segments; of each kind so many bytes. What was read first
    goes first, of terms those that were asked for longest ago.

    For one event loop.
    """

    def __init__(self, most_list_bytes: int, most_chunk_bytes: int) -> None:
        self._most_list_bytes, self._most_chunk_bytes = most_list_bytes, most_chunk_bytes
        self._list_bytes = self._chunk_bytes = 0
        self._lists: dict[Key, TermLists] = {}
        self._chunks: dict[int, SegmentChunks] = {}
        self.languages: dict[tuple[str, int], Sequence[str]] = {}
        """Of a tenant's collection, when it was last asked."""

    def lists(self, key: Key) -> TermLists:
        """Empty where none were read."""
        if key not in self._lists:
            return NO_LISTS
        known = self._lists[key] = self._lists.pop(key)  # behind those that were asked for before
        return known

    def keep_lists(self, key: Key, lists: TermLists) -> None:
        """In place of what is known."""
        self._list_bytes += lists.n_bytes - self._lists.pop(key, NO_LISTS).n_bytes
        self._lists[key] = lists
        while self._list_bytes > self._most_list_bytes:
            self._list_bytes -= self._lists.pop(next(iter(self._lists))).n_bytes

    def chunks(self, segment: int) -> SegmentChunks | None:
        return self._chunks.get(segment)

    def add_chunks(self, segment: int, chunks: SegmentChunks) -> None:
        if (same := self._chunks.pop(segment, None)) is not None:  # two questions have read it at once
            self._chunk_bytes -= same.bytes
        self._chunks[segment] = chunks
        self._chunk_bytes += chunks.bytes
        while self._chunk_bytes > self._most_chunk_bytes:
            self._chunk_bytes -= self._chunks.pop(next(iter(self._chunks))).bytes
