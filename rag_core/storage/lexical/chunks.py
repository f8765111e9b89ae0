"""The numbering of a collection's chunks: segment after segment, in ascending order of the segments' ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rag_core.storage.lexical.compilation import jit
from rag_core.storage.lexical.packing import Numbers, unpack_numbers

Mask: TypeAlias = NDArray[np.bool_]
"""Shape (chunks of the collection,)."""


class Ranges(NamedTuple):
    """Ranges of consecutive chunks: range i has `counts[i]` chunks of segment `segments[i]`, from local number
    `firsts[i]` on. A segment is given by its id, or by its position after `with_positions`."""

    segments: Numbers
    firsts: Numbers
    counts: Numbers

    @classmethod
    def from_columns(cls, columns: Sequence[bytes]) -> "Ranges":
        """Reads the three packed columns."""
        return cls(*map(unpack_numbers, columns))

    def with_positions(self, segment_ids: Numbers) -> "Ranges":
        """Replaces every segment id by its position in `segment_ids`, which must be ascending and contain it."""
        if not len(self.segments):  # nearly always
            return self
        return self._replace(segments=np.searchsorted(segment_ids, self.segments))


NO_RANGES = Ranges.from_columns((b"", b"", b""))


@dataclass(frozen=True, slots=True)
class Chunks:
    """All chunks of a collection. The chunk `local` of the segment at position p has the number `offsets[p] + local`.

    The last of the `offsets` is the count of all chunks. `total_length` is the sum of the living chunks' lengths in
    terms. `languages` holds the count of living chunks of each language.
    """

    offsets: Numbers
    dead: Mask
    living: int
    total_length: int
    languages: Mapping[str, int]

    @classmethod
    def from_counts(cls, counts: Numbers, dead: Ranges, total_length: int, languages: Mapping[str, int]) -> "Chunks":
        """`counts` holds the size of each segment in chunks, including the dead ones."""
        offsets = np.zeros(len(counts) + 1, np.int64)
        offsets[1:] = np.cumsum(counts)
        mask = mask_ranges(offsets, dead)
        return cls(offsets, mask, len(mask) - int(np.count_nonzero(mask)), total_length, languages)


@jit
def mask_ranges(offsets: Numbers, ranges: Ranges) -> Mask:
    """True for the chunks in the ranges, whose segments must be positions. `offsets` are those of `Chunks`."""
    mask = np.zeros(offsets[-1], np.bool_)
    for row in range(len(ranges.counts)):
        first = offsets[ranges.segments[row]] + ranges.firsts[row]
        mask[first : first + ranges.counts[row]] = True
    return mask
