"""The posting lists of a term, as they are read and kept."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BYTES_EACH = 100
"""That a list costs beside its postings, about, whether the segment has the term or not."""


@dataclass(frozen=True, slots=True)
class TermLists:
    """One behind the other: the list in segment `segments[i]` has `sizes[i]` bytes of `postings`.

    `read` are all segments that were looked into; others of these do not have the term.
    """

    read: frozenset[int]
    segments: NDArray[np.int64]
    sizes: NDArray[np.int64]
    postings: bytes

    @classmethod
    def by_segment(cls, lists: Mapping[int, bytes]) -> "TermLists":
        sizes = np.array(list(map(len, lists.values())), np.int64)
        return cls(frozenset(lists), np.array(list(lists), np.int64), sizes, b"".join(lists.values()))

    @property
    def bytes(self) -> int:
        return BYTES_EACH * len(self.read) + len(self.postings)

    def of(self, segments: Set[int]) -> "TermLists":
        """Of these segments only."""
        if self.read <= segments:
            return self
        kept = [n for n, segment in enumerate(self.segments.tolist()) if segment in segments]
        ends = np.cumsum(self.sizes)
        postings = b"".join(self.postings[ends[n] - self.sizes[n] : ends[n]] for n in kept)
        return TermLists(self.read & segments, self.segments[kept], self.sizes[kept], postings)

    def plus(self, other: "TermLists") -> "TermLists":
        """And those of segments that are not read yet."""
        if not self.read:
            return other
        new = other.of(other.read - self.read)
        return TermLists(
            self.read | new.read,
            np.concatenate([self.segments, new.segments]),
            np.concatenate([self.sizes, new.sizes]),
            self.postings + new.postings,
        )


NO_LISTS = TermLists.by_segment({})
