"""The chunks of a collection as its segments number them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rag_core.storage.lexical.compilation import compiled
from rag_core.storage.lexical.packing import Numbers, unpacked

Mask: TypeAlias = NDArray[np.bool_]


class Ranges(NamedTuple):
    """Chunks next to each other: `counts[i]` of segment `segments[i]`, from number `firsts[i]` on."""

    segments: Numbers
    firsts: Numbers
    counts: Numbers

    @classmethod
    def unpacked(cls, columns: Sequence[bytes]) -> "Ranges":
        return cls(*map(unpacked, columns))

    def at(self, segments: Numbers) -> "Ranges":
        """With the places in these ids, which ascend, for the ids: each must be one of them."""
        if not len(self.segments):  # as almost always
            return self
        return self._replace(segments=np.searchsorted(segments, self.segments))


NO_RANGES = Ranges.unpacked((b"", b"", b""))


@dataclass(frozen=True, slots=True)
class Chunks:
    """All chunks of a collection, segment after segment: chunk `local` of segment s is number `firsts[s] + local`.

    `firsts` has one more entry, the number of chunks. `total_length` is that of the `living` ones, and `languages`
    counts these.
    """

    firsts: Numbers
    dead: Mask
    living: int
    total_length: int
    languages: Mapping[str, int]

    @classmethod
    def of(cls, counts: Numbers, dead: Ranges, total_length: int, languages: Mapping[str, int]) -> "Chunks":
        """Of segments that number so many each."""
        firsts, mask = _numbered(counts, dead)
        return cls(firsts, mask, len(mask) - int(np.count_nonzero(mask)), total_length, languages)


@compiled
def covering(firsts: Numbers, ranges: Ranges) -> Mask:
    """True for those chunks; the ranges have places of segments."""
    mask = np.zeros(firsts[-1], np.bool_)
    for row in range(len(ranges.counts)):
        first = firsts[ranges.segments[row]] + ranges.firsts[row]
        mask[first : first + ranges.counts[row]] = True
    return mask


@compiled
def _numbered(counts: Numbers, dead: Ranges) -> tuple[Numbers, Mask]:
    """The first chunk of each segment, and which chunks are dead."""
    firsts = np.zeros(len(counts) + 1, np.int64)
    firsts[1:] = np.cumsum(counts)
    return firsts, covering(firsts, dead)
