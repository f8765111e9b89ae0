"""What this process has read of segments: they are immutable, so it is true for as long as those exist."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from rag_core.storage.lexical.segment import CHUNK_ID

LIST_OVERHEAD = 160
"""Bytes that a posting list costs beside its own, about."""


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
    """Posting lists by term and segment, and the chunks of segments; of each kind so many bytes. What was read first
    goes first, of terms those that were asked for longest ago. An empty list says that the segment has no such term.

    For one event loop.
    """

    def __init__(self, most_list_bytes: int, most_chunk_bytes: int) -> None:
        self._most_list_bytes, self._most_chunk_bytes = most_list_bytes, most_chunk_bytes
        self._list_bytes = self._chunk_bytes = 0
        self._lists: dict[str, dict[int, bytes]] = {}
        self._chunks: dict[int, SegmentChunks] = {}

    def lists(self, term: str) -> Mapping[int, bytes]:
        """By segment."""
        if term in self._lists:
            self._lists[term] = self._lists.pop(term)  # behind those that were asked for before
        return self._lists.get(term, {})

    def add_lists(self, term: str, lists: Mapping[int, bytes]) -> None:
        own = self._lists.setdefault(term, {})
        self._list_bytes -= _size(own)
        own.update(lists)
        self._list_bytes += _size(own)
        while self._list_bytes > self._most_list_bytes:
            self._list_bytes -= _size(self._lists.pop(next(iter(self._lists))))

    def chunks(self, segment: int) -> SegmentChunks | None:
        return self._chunks.get(segment)

    def add_chunks(self, segment: int, chunks: SegmentChunks) -> None:
        if (same := self._chunks.pop(segment, None)) is not None:  # two questions have read it at once
            self._chunk_bytes -= same.bytes
        self._chunks[segment] = chunks
        self._chunk_bytes += chunks.bytes
        while self._chunk_bytes > self._most_chunk_bytes:
            self._chunk_bytes -= self._chunks.pop(next(iter(self._chunks))).bytes


def _size(lists: Mapping[int, bytes]) -> int:
    return LIST_OVERHEAD * len(lists) + sum(map(len, lists.values()))
