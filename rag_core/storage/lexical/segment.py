"""A segment of the lexical index, before it is stored: for every term one posting list of the chunks that have it.

Of words, term frequencies and lengths are stored, not weights: those move with every document that is published.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from rag_core.storage.lexical.kinds import SPLADE, WORDS
from rag_core.storage.lexical.packing import Numbers
from rag_core.types import TermWeights

MOST_CHUNKS = 65_536
"""Local ids fit 16 bits."""

MOST = 65_535
"""What a frequency, a length or a weight is cut to."""

WEIGHT_STEP = 1 / 8192
"""SPLADE's weights, ln(1 + x), hardly pass 5, and this reaches 8. One below half a step is left out."""

DTYPE = np.dtype("<u2")
CHUNK_ID = np.dtype("S16")


@dataclass(frozen=True, slots=True)
class SegmentDocument:
    """A version of a document: the terms of each of its chunks, in their order, with weights where they have any.

    `language` is the one that made the terms, empty where none did.
    """

    id: UUID
    version: int
    language: str
    chunk_ids: Sequence[UUID]
    chunks: Sequence[Sequence[str]] | Sequence[TermWeights]


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
    """Chunks are numbered from 0: `chunk_ids` has 16 bytes for each.

    `postings` has a list for each term, one behind the other, of `sizes` bytes each: an array of 16-bit little-endian
    numbers. Of words, its shape is [3, n]: the numbers of the chunks that have it, ascending; how often each has it;
    the chunk's length in terms. Of SPLADE, [2, n]: the numbers, and the weights in steps of WEIGHT_STEP. Terms ascend.
    """

    documents: tuple[DocumentRow, ...]
    chunk_ids: bytes
    terms: Sequence[str]
    sizes: Sequence[int]
    postings: bytes


def build(documents: Iterable[SegmentDocument], kind: str = WORDS) -> list[Segment]:
    """As few as hold all documents, each whole, in the order given.

    ValueError for a document of more chunks than a segment can number.
    """
    return [_segment(group, POSTED[kind]) for group in _grouped(documents)]


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


def _segment(documents: Sequence[SegmentDocument], posted: "Posted") -> Segment:
    chunks = [chunk for document in documents for chunk in document.chunks]
    lengths = np.minimum(np.fromiter(map(len, chunks), np.int64, len(chunks)), MOST)
    terms, counts, table = posted(chunks, lengths)
    found = np.flatnonzero(counts).tolist()
    return Segment(
        documents=tuple(_rows(documents, lengths)),
        chunk_ids=b"".join(id.bytes for document in documents for id in document.chunk_ids),
        terms=[terms[number] for number in found],
        sizes=(counts[found] * DTYPE.itemsize * len(table)).tolist(),
        postings=laid_out(table.astype(DTYPE), counts),
    )


def _rows(documents: Sequence[SegmentDocument], lengths: Numbers) -> Iterator[DocumentRow]:
    first = 0
    for document in documents:
        n_chunks = len(document.chunks)
        total = int(lengths[first : first + n_chunks].sum())
        yield DocumentRow(document.id, document.version, first, n_chunks, total, document.language)
        first += n_chunks


def _word_postings(chunks: Sequence[Sequence[str]], lengths: Numbers) -> tuple[list[str], Numbers, Numbers]:
    terms, numbers, locals = _occurrences(chunks)
    order = _by_term(numbers)
    pairs = (numbers[order].astype(np.int64) << 16) | locals[order]
    firsts = np.flatnonzero(np.diff(pairs, prepend=-1))
    frequencies = np.diff(firsts, append=len(pairs))
    local = pairs[firsts] & 0xFFFF
    table = np.stack([local, np.minimum(frequencies, MOST), lengths[local]])
    return terms, np.bincount(pairs[firsts] >> 16, minlength=len(terms)), table


def _weighted_postings(chunks: Sequence[TermWeights], _: Numbers) -> tuple[list[str], Numbers, Numbers]:
    terms, numbers, locals = _occurrences([chunk.terms for chunk in chunks])
    weights = np.concatenate([chunk.weights for chunk in chunks], dtype=np.float64)
    steps = np.minimum(np.rint(weights / WEIGHT_STEP), MOST).astype(np.int64)
    order = _by_term(numbers)
    order = order[steps[order] > 0]
    return terms, np.bincount(numbers[order], minlength=len(terms)), np.stack([locals[order], steps[order]])


Posted: TypeAlias = Callable[[Sequence[Any], Numbers], tuple[list[str], Numbers, Numbers]]
"""From chunks and their lengths to terms, how many postings each has, and these, of shape [columns, postings]."""

POSTED: Mapping[str, Posted] = {WORDS: _word_postings, SPLADE: _weighted_postings}


def _occurrences(chunks: Sequence[Sequence[str]]) -> tuple[list[str], NDArray[np.uint32], Numbers]:
    """The terms in their order; and for every term of every chunk, chunk by chunk, its number and the chunk's."""
    met = defaultdict[str, int](itertools.count().__next__)
    sizes = np.fromiter(map(len, chunks), np.int64, len(chunks))
    flat = np.fromiter(map(met.__getitem__, itertools.chain.from_iterable(chunks)), np.int64, int(sizes.sum()))
    terms = sorted(met)
    ranks = np.empty(len(terms), np.uint32)
    ranks[[met[term] for term in terms]] = np.arange(len(terms))
    return terms, ranks[flat], np.repeat(np.arange(len(chunks)), sizes)


def _by_term(numbers: NDArray[np.uint32]) -> Numbers:
    """The order of the numbers, equal ones as they stand: by two digits of 16 bits, which numpy sorts fast."""
    return np.lexsort((numbers.astype(np.uint16), (numbers >> 16).astype(np.uint16)))


def laid_out(table: NDArray[np.uint16], counts: Numbers) -> bytes:
    """The columns of the table as lists: the first `counts[0]` are the first one's, and so on."""
    columns, flat = len(table), np.empty(table.size, DTYPE)
    flat[cells(columns * (np.cumsum(counts) - counts), counts, columns)] = table
    return flat.tobytes()


def cells(starts: Numbers, counts: Numbers, columns: int) -> Numbers:
    """Where the numbers of each posting stand, shape [columns, postings], in lists of shape [columns, count] that begin
    at `starts`."""
    first = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    found: Numbers = first + np.arange(columns)[:, None] * np.repeat(counts, counts)
    return found
