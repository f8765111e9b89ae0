"""A segment of the lexical index before it is stored: for every term one posting list of the chunks that have it.

For words, term frequencies and lengths are stored instead of weights, because every published document changes all
weights.
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

MAX_CHUNKS = 65_536
"""The most chunks of a segment: their local numbers fit 16 bits."""

MAX_VALUE = 65_535
"""The highest frequency, length or weight that a posting can hold. Higher values are stored as this one."""

WEIGHT_STEP = 1 / 8192
"""The unit of SPLADE's stored weights. They are ln(1 + x) and rarely above 5; 16 bits reach 8 in these steps. A weight
below half a step is left out."""

DTYPE = np.dtype("<u2")
CHUNK_ID = np.dtype("S16")


@dataclass(frozen=True, slots=True)
class SegmentDocument:
    """A version of a document, with the terms of each of its chunks in chunk order, or with their weights.

    `language` is the language in which the terms were analyzed; empty if there was none.
    """

    id: UUID
    version: int
    language: str
    chunk_ids: Sequence[UUID]
    chunks: Sequence[Sequence[str]] | Sequence[TermWeights]


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document of a segment. Its chunks have local numbers from `first_local` on. `total_length` counts its terms."""

    id: UUID
    version: int
    first_local: int
    n_chunks: int
    total_length: int
    language: str


@dataclass(frozen=True, slots=True)
class Segment:
    """Some documents and the posting lists of their terms. Chunks have local numbers from 0; `chunk_ids` holds 16 bytes
    for each.

    `postings` holds one list for each term, in the ascending order of `terms`; `sizes` are their lengths in bytes. A
    list is an array of 16-bit little-endian numbers. For words its shape is (3, n): the local numbers of the chunks
    that have the term, ascending; its frequency in each chunk; the length of each chunk in terms. For SPLADE its shape
    is (2, n): the local numbers, and the weights in units of WEIGHT_STEP.
    """

    documents: tuple[DocumentRow, ...]
    chunk_ids: bytes
    terms: Sequence[str]
    sizes: Sequence[int]
    postings: bytes


def build_segments(documents: Iterable[SegmentDocument], kind: str = WORDS) -> list[Segment]:
    """The fewest segments that hold all documents in the order given. No document is split.

    Raises ValueError for a document with more chunks than a segment can number.
    """
    return [_build_segment(group, POSTING_BUILDERS[kind]) for group in _group_documents(documents)]


def _group_documents(documents: Iterable[SegmentDocument]) -> Iterator[list[SegmentDocument]]:
    group: list[SegmentDocument] = []
    count = 0
    for document in documents:
        if len(document.chunks) > MAX_CHUNKS:
            raise ValueError(
                f"document {document.id} must have at most {MAX_CHUNKS} chunks, got {len(document.chunks)}"
            )
        if count + len(document.chunks) > MAX_CHUNKS:
            yield group
            group, count = [], 0
        group.append(document)
        count += len(document.chunks)
    if group:
        yield group


def _build_segment(documents: Sequence[SegmentDocument], build_postings: "PostingBuilder") -> Segment:
    chunks = [chunk for document in documents for chunk in document.chunks]
    lengths = np.minimum(np.fromiter(map(len, chunks), np.int64, len(chunks)), MAX_VALUE)
    terms, counts, table = build_postings(chunks, lengths)
    present = np.flatnonzero(counts).tolist()
    return Segment(
        documents=tuple(_document_rows(documents, lengths)),
        chunk_ids=b"".join(id.bytes for document in documents for id in document.chunk_ids),
        terms=[terms[number] for number in present],
        sizes=(counts[present] * DTYPE.itemsize * len(table)).tolist(),
        postings=encode_postings(table.astype(DTYPE), counts),
    )


def _document_rows(documents: Sequence[SegmentDocument], lengths: Numbers) -> Iterator[DocumentRow]:
    first = 0
    for document in documents:
        n_chunks = len(document.chunks)
        total = int(lengths[first : first + n_chunks].sum())
        yield DocumentRow(document.id, document.version, first, n_chunks, total, document.language)
        first += n_chunks


def _word_postings(chunks: Sequence[Sequence[str]], lengths: Numbers) -> tuple[list[str], Numbers, Numbers]:
    terms, numbers, local_numbers = _number_terms(chunks)
    order = _sort_by_term(numbers)
    pairs = (numbers[order].astype(np.int64) << 16) | local_numbers[order]
    firsts = np.flatnonzero(np.diff(pairs, prepend=-1))
    frequencies = np.diff(firsts, append=len(pairs))
    local = pairs[firsts] & 0xFFFF
    table = np.stack([local, np.minimum(frequencies, MAX_VALUE), lengths[local]])
    return terms, np.bincount(pairs[firsts] >> 16, minlength=len(terms)), table


def _splade_postings(chunks: Sequence[TermWeights], _: Numbers) -> tuple[list[str], Numbers, Numbers]:
    terms, numbers, local_numbers = _number_terms([chunk.terms for chunk in chunks])
    weights = np.concatenate([chunk.weights for chunk in chunks], dtype=np.float64)
    steps = np.minimum(np.rint(weights / WEIGHT_STEP), MAX_VALUE).astype(np.int64)
    order = _sort_by_term(numbers)
    order = order[steps[order] > 0]
    return terms, np.bincount(numbers[order], minlength=len(terms)), np.stack([local_numbers[order], steps[order]])


PostingBuilder: TypeAlias = Callable[[Sequence[Any], Numbers], tuple[list[str], Numbers, Numbers]]
"""Takes chunks and their lengths. Returns the terms, the count of postings of each term, and all postings in the order
of the terms, in the shape (columns, postings)."""

POSTING_BUILDERS: Mapping[str, PostingBuilder] = {WORDS: _word_postings, SPLADE: _splade_postings}


def _number_terms(chunks: Sequence[Sequence[str]]) -> tuple[list[str], NDArray[np.uint32], Numbers]:
    """The distinct terms, sorted. Then, for every term of every chunk, its index among them and the chunk's number."""
    first_indexes = defaultdict[str, int](itertools.count().__next__)
    sizes = np.fromiter(map(len, chunks), np.int64, len(chunks))
    flat = np.fromiter(
        map(first_indexes.__getitem__, itertools.chain.from_iterable(chunks)), np.int64, int(sizes.sum())
    )
    terms = sorted(first_indexes)
    ranks = np.empty(len(terms), np.uint32)
    ranks[[first_indexes[term] for term in terms]] = np.arange(len(terms))
    return terms, ranks[flat], np.repeat(np.arange(len(chunks)), sizes)


def _sort_by_term(numbers: NDArray[np.uint32]) -> Numbers:
    """The order that sorts the numbers, stable. It compares two digits of 16 bits, which numpy sorts fast."""
    return np.lexsort((numbers.astype(np.uint16), (numbers >> 16).astype(np.uint16)))


def encode_postings(table: NDArray[np.uint16], counts: Numbers) -> bytes:
    """The posting lists of all terms, one after the other, from a table of shape (columns, postings).

    The first `counts[0]` postings are the list of the first term, and so on.
    """
    columns, flat = len(table), np.empty(table.size, DTYPE)
    flat[number_offsets(columns * (np.cumsum(counts) - counts), counts, columns)] = table
    return flat.tobytes()


def number_offsets(starts: Numbers, counts: Numbers, columns: int) -> Numbers:
    """The offsets of the numbers of all postings, in the shape (columns, postings).

    List i begins at `starts[i]`, and its shape is (columns, counts[i]).
    """
    first = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    offsets: Numbers = first + np.arange(columns)[:, None] * np.repeat(counts, counts)
    return offsets
