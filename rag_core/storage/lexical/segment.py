"""A segment of the lexical index, before it is stored: for every term one posting list of the chunks that have it.

Term frequencies and lengths are stored, not weights: those move with every document that is published.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

MOST_CHUNKS = 65_536
"""Local ids fit 16 bits."""

MOST = 65_535
"""What a frequency or a length is cut to."""

DTYPE = np.dtype("<u2")


@dataclass(frozen=True, slots=True)
class SegmentDocument:
    """A version of a document: the terms of each of its chunks, in their order, and the language that made them."""

    id: UUID
    version: int
    language: str
    chunks: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """The document's chunks are numbered from `first_local` on. `total_length` counts their terms."""

    id: UUID
    version: int
    first_local: int
    n_chunks: int
    total_length: int
    language: str


@dataclass(frozen=True, slots=True)
class Segment:
    """`postings` holds an array of 16-bit little-endian numbers for each term, of shape [3, n]: the local ids of the
    chunks that have it, ascending; how often each has it; the chunk's length in terms."""

    documents: tuple[DocumentRow, ...]
    postings: Mapping[str, bytes]


def build(documents: Iterable[SegmentDocument]) -> list[Segment]:
    """As few as hold all documents, each whole, in the order given.

    ValueError for a document of more chunks than a segment can number.
    """
    return [_segment(group) for group in _grouped(documents)]


def _grouped(documents: Iterable[SegmentDocument]) -> Iterator[list[SegmentDocument]]:
    group: list[SegmentDocument] = []
    count = 0
    for document in documents:
        if len(document.chunks) > MOST_CHUNKS:
            raise ValueError(f"a segment holds at most {MOST_CHUNKS} chunks, document {document.id} has more")
        if count + len(document.chunks) > MOST_CHUNKS:
            yield group
            group, count = [], 0
        group.append(document)
        count += len(document.chunks)
    if group:
        yield group


def _segment(documents: Sequence[SegmentDocument]) -> Segment:
    chunks = [chunk for document in documents for chunk in document.chunks]
    lengths = np.minimum(np.fromiter(map(len, chunks), np.int64, len(chunks)), MOST)
    return Segment(
        documents=tuple(_rows(documents, lengths)),
        postings=_postings(chunks, lengths),
    )


def _rows(documents: Sequence[SegmentDocument], lengths: NDArray[np.int64]) -> Iterator[DocumentRow]:
    first = 0
    for document in documents:
        n_chunks = len(document.chunks)
        total = int(lengths[first : first + n_chunks].sum())
        yield DocumentRow(document.id, document.version, first, n_chunks, total, document.language)
        first += n_chunks


def _postings(chunks: Sequence[Sequence[str]], lengths: NDArray[np.int64]) -> dict[str, bytes]:
    """One number for every (term, chunk) that there is, sorted: equal ones stand together and are counted."""
    numbers = {term: number for number, term in enumerate(dict.fromkeys(chain.from_iterable(chunks)))}
    sizes = np.fromiter(map(len, chunks), np.int64, len(chunks))
    occurrences = np.fromiter(map(numbers.__getitem__, chain.from_iterable(chunks)), np.int64, int(sizes.sum()))
    occurrences = (occurrences << 16) | np.repeat(np.arange(len(chunks)), sizes)
    pairs, frequencies = np.unique(occurrences, return_counts=True)
    local = pairs & 0xFFFF
    table = np.stack([local, np.minimum(frequencies, MOST), lengths[local]]).astype(DTYPE)
    ends = np.searchsorted(pairs >> 16, np.arange(len(numbers)), side="right").tolist()
    return {term: table[:, first:end].tobytes() for term, first, end in zip(numbers, [0, *ends], ends)}  # noqa: B905
