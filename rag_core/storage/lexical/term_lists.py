"""The posting lists of a term, as they are read and kept."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

import numpy as np

from rag_core.storage.lexical.packing import packed, unpacked

BYTES_EACH = 100
"""That a list costs beside its postings, about, whether the segment has the term or not."""


@dataclass(frozen=True, slots=True)
class TermLists:
    """One behind the other in `postings`: packed numbers tell the segment of each, and of how many bytes it is.

    `read` are all segments that were looked into; others of these do not have the term.
    """

    read: frozenset[int]
    segments: bytes
    sizes: bytes
    postings: bytes

    @classmethod
    def by_segment(cls, lists: Mapping[int, bytes]) -> "TermLists":
        sizes = [len(postings) for postings in lists.values()]
        return cls(frozenset(lists), packed(lists), packed(sizes), b"".join(lists.values()))

    @property
    def n_bytes(self) -> int:
        return BYTES_EACH * len(self.read) + len(self.postings)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Each segment that has the term, with its list."""
        sizes = unpacked(self.sizes)
        ends = np.cumsum(sizes)
        for segment, start, end in zip(unpacked(self.segments), ends - sizes, ends, strict=True):
            yield int(segment), self.postings[start:end]

    def of(self, segments: Set[int]) -> "TermLists":
        """Of these segments only."""
        if self.read <= segments:
            return self
        kept = {segment: postings for segment, postings in self if segment in segments}
        return replace(TermLists.by_segment(kept), read=self.read & segments)

    def plus(self, other: "TermLists") -> "TermLists":
        """And those of segments that are not read yet."""
        if not self.read:
            return other
        new = other.of(other.read - self.read)
        return TermLists(
            self.read | new.read,
            self.segments + new.segments,
            self.sizes + new.sizes,
            self.postings + new.postings,
        )


NO_LISTS = TermLists.by_segment({})
