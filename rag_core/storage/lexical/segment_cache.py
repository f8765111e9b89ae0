"""The cache of posting lists and chunk ids. Segments are immutable, so a cached value never becomes outdated."""

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
    """The ids of a segment's chunks. `ids` holds 16 bytes for each chunk, by local number."""

    def __init__(self, ids: bytes) -> None:
        self._ids = ids
        unsorted = np.frombuffer(ids, CHUNK_ID)
        order = np.argsort(unsorted)
        self._sorted, self._local_numbers = unsorted[order], order.astype(np.uint16)

    @property
    def n_bytes(self) -> int:
        return len(self._ids) + self._sorted.nbytes + self._local_numbers.nbytes

    def id(self, local: int) -> UUID:
        return UUID(bytes=self._ids[CHUNK_ID.itemsize * local : CHUNK_ID.itemsize * (local + 1)])

    def find(self, packed_ids: NDArray[np.bytes_]) -> tuple[NDArray[np.intp], NDArray[np.uint16]]:
        """The indexes, in `packed_ids`, of the chunks that the segment has, and their local numbers."""
        candidates = np.minimum(np.searchsorted(self._sorted, packed_ids), len(self._sorted) - 1)
        (indexes,) = np.nonzero(self._sorted[candidates] == packed_ids)
        return indexes, self._local_numbers[candidates[indexes]]


def pack_ids(ids: Sequence[UUID]) -> NDArray[np.bytes_]:
    """The argument of `SegmentChunks.find`."""
    return np.frombuffer(b"".join(id.bytes for id in ids), CHUNK_ID)


class SegmentCache:
    """Caches posting lists by term, and chunk ids by segment, each up to a limit in bytes. Serves one event loop.

    When a limit is exceeded, the least recently used terms are removed, or the segments that were read first.
    `languages` holds the languages of each tenant's collection, as its last question found them.
    """

    def __init__(self, max_list_bytes: int, max_chunk_bytes: int) -> None:
        self._max_list_bytes, self._max_chunk_bytes = max_list_bytes, max_chunk_bytes
        self._list_bytes = self._chunk_bytes = 0
        self._lists: dict[Key, TermLists] = {}
        self._chunks: dict[int, SegmentChunks] = {}
        self.languages: dict[tuple[str, int], Sequence[str]] = {}

    def lists(self, key: Key) -> TermLists:
        """The lists of the term, or NO_LISTS if it is not cached."""
        if key not in self._lists:
            return NO_LISTS
        lists = self._lists[key] = self._lists.pop(key)  # moved to the end: the most recently used
        return lists

    def store_lists(self, key: Key, lists: TermLists) -> None:
        """Replaces the lists of the term."""
        self._list_bytes += lists.n_bytes - self._lists.pop(key, NO_LISTS).n_bytes
        self._lists[key] = lists
        while self._list_bytes > self._max_list_bytes:
            self._list_bytes -= self._lists.pop(next(iter(self._lists))).n_bytes

    def chunks(self, segment: int) -> SegmentChunks | None:
        return self._chunks.get(segment)

    def store_chunks(self, segment: int, chunks: SegmentChunks) -> None:
        if (existing := self._chunks.pop(segment, None)) is not None:  # two concurrent questions have read it
            self._chunk_bytes -= existing.n_bytes
        self._chunks[segment] = chunks
        self._chunk_bytes += chunks.n_bytes
        while self._chunk_bytes > self._max_chunk_bytes:
            self._chunk_bytes -= self._chunks.pop(next(iter(self._chunks))).n_bytes
