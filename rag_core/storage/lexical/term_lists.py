"""The posting lists of one term, as they are read from the store and cached."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

import numpy as np

from rag_core.storage.lexical.packing import pack_numbers, unpack_numbers

SEGMENT_BYTES = 100
"""The approximate memory per segment besides its postings. It is used even if the segment does not have the term."""


@dataclass(frozen=True, slots=True)
class TermLists:
    """The lists of all segments that have the term, concatenated in `postings`.

    `segments` and `sizes` are packed numbers: the segment id of each list, and its length in bytes. `read_segments`
    holds the ids of all segments that were read. Those without a list do not have the term.
    """

    read_segments: frozenset[int]
    segments: bytes
    sizes: bytes
    postings: bytes

    @classmethod
    def from_segments(cls, lists: Mapping[int, bytes]) -> "TermLists":
        """`lists` holds a posting list by segment id. No other segment counts as read."""
        sizes = [len(postings) for postings in lists.values()]
        return cls(frozenset(lists), pack_numbers(lists), pack_numbers(sizes), b"".join(lists.values()))

    @property
    def n_bytes(self) -> int:
        return SEGMENT_BYTES * len(self.read_segments) + len(self.postings)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yields the id and the posting list of each segment that has the term."""
        sizes = unpack_numbers(self.sizes)
        ends = np.cumsum(sizes)
        for segment, start, end in zip(unpack_numbers(self.segments), ends - sizes, ends, strict=True):
            yield int(segment), self.postings[start:end]

    def restrict_to(self, segments: Set[int]) -> "TermLists":
        """A copy for these segment ids only."""
        if self.read_segments <= segments:
            return self
        lists = {segment: postings for segment, postings in self if segment in segments}
        return replace(TermLists.from_segments(lists), read_segments=self.read_segments & segments)

    def merge(self, other: "TermLists") -> "TermLists":
        """A copy with the lists of `other` for segments that this one has not read."""
        if not self.read_segments:
            return other
        new = other.restrict_to(other.read_segments - self.read_segments)
        return TermLists(
            self.read_segments | new.read_segments,
            self.segments + new.segments,
            self.sizes + new.sizes,
            self.postings + new.postings,
        )


NO_LISTS = TermLists.from_segments({})
