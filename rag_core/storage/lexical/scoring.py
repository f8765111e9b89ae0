"""Exact BM25 over posting lists, in compiled code.

Scores are added up term by term, in one array per segment. A heap keeps the k best.

A chunk's score is the sum, over the question's terms, of

    idf * f * (k1 + 1) / (f + k1 * (1 - b + b * length / average))

where f is the frequency of the term in the chunk (Robertson et al., Okapi at TREC-3; rank_bm25 and bm25s use the same).
"""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rag_core.storage.lexical.chunks import NO_RANGES, Chunks, Mask
from rag_core.storage.lexical.compilation import jit
from rag_core.storage.lexical.packing import Numbers
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.lexical.postings import Postings, join_lists
from rag_core.storage.lexical.segment import DTYPE
from rag_core.storage.lexical.term_lists import TermLists
from rag_core.text.analysis import Question

Scores: TypeAlias = NDArray[np.float64]
LocalNumbers: TypeAlias = NDArray[np.uint16] | NDArray[np.int64]

MAX_TIES = 1_000
"""The most chunks beyond the k best that are returned because they tie with the k-th. If more tie, the choice among
them is arbitrary."""


class BestChunks(NamedTuple):
    """The best chunks so far. `heap` holds the k best scores, the lowest on top.

    The other arrays hold the chunks: the k best, those that tie with the lowest, and some that a later, better chunk
    has displaced. These are removed when the arrays are full.
    """

    heap: Scores
    segments: Numbers
    local_numbers: Numbers
    scores: Scores


class _Norm(NamedTuple):
    """The constants of the formula: f * `factor` / (f + `constant` + `per_term` * length)."""

    factor: float
    constant: float
    per_term: float


def term_weights(chunks: Chunks, postings: Postings, question: Question) -> Scores:
    """The weight of each term: its count in the question, times Lucene's idf, which is never negative.

    In a collection of several languages, the idf of a word counts every chunk that has any of the word's terms.
    Otherwise one English document marked as Spanish would make all its English words rare. A word that is a stop word
    of a language counts as present in all chunks of that language.

    Pirkola, The effects of query structure and dictionary setups in dictionary-based cross-language information
    retrieval, SIGIR 1998, treats the terms of one word as synonyms in the same way.
    """
    n_terms = len(question.counts)
    any_dead = chunks.living < len(chunks.dead)
    frequencies = _document_frequencies(postings, chunks.offsets, chunks.dead, any_dead, n_terms)
    if len(chunks.languages) > 1:
        frequencies = np.minimum(_word_frequencies(frequencies, question, chunks.languages), chunks.living)
    idf: Scores = np.log1p((chunks.living - frequencies + 0.5) / (frequencies + 0.5))
    return np.multiply(idf, list(question.counts.values()))


def _word_frequencies(frequencies: Numbers, question: Question, languages: Mapping[str, int]) -> Numbers:
    """The frequency of the most frequent word that a term belongs to, for each term."""
    numbers = {term: number for number, term in enumerate(question.counts)}
    highest = frequencies.copy()
    for word in question.words:
        terms = [numbers[term] for term in word.terms]
        total = frequencies[terms].sum() + sum(languages[language] for language in word.stop_word_in)
        highest[terms] = np.maximum(highest[terms], total)
    return highest


def find_best(
    chunks: Chunks, postings: Postings, weights: Scores, bm25: Bm25, excluded: Mask, k: int
) -> tuple[Numbers, Numbers, Scores]:
    """The k best chunks that are not excluded, and at most MAX_TIES more that tie with the k-th, in no order.

    Returns the positions of their segments, their local numbers and their scores. Every chunk has at least one of the
    terms.
    """
    return _find_best(postings, weights, _norm(chunks, bm25), chunks.offsets, excluded, k, MAX_TIES)


def score_chunks(
    chunks: Chunks, postings: Postings, weights: Scores, bm25: Bm25, segments: Numbers, local_numbers: Numbers
) -> Scores:
    """The scores of these chunks, in the order given: the same numbers, to the bit, as from `find_best`.

    `segments` holds the positions of their segments.
    """
    return _score_chunks(postings, weights, _norm(chunks, bm25), segments, local_numbers)


@cache
def compile_all() -> None:
    """Compiles the functions of this module, so that no question waits for it. The first time takes seconds."""
    zero, one, bm25 = np.zeros(1, np.int64), np.ones(1, np.int64), Bm25(1.5, 0.75)
    chunks = Chunks.from_counts(one, NO_RANGES, 1, {"": 1})
    postings = join_lists([TermLists.from_segments({1: np.array([[0], [1], [1]], DTYPE).tobytes()})], one)
    weights = term_weights(chunks, postings, Question({"a": 1}, ()))
    find_best(chunks, postings, weights, bm25, chunks.dead, 1)
    score_chunks(chunks, postings, weights, bm25, zero, zero)


def _norm(chunks: Chunks, bm25: Bm25) -> _Norm:
    average = max(chunks.total_length, 1) / max(chunks.living, 1)
    return _Norm(bm25.k1 + 1.0, bm25.k1 * (1.0 - bm25.b), bm25.k1 * bm25.b / average)


@jit
def _document_frequencies(postings: Postings, offsets: Numbers, dead: Mask, any_dead: bool, n_terms: int) -> Numbers:
    """The count of living chunks that have the term, for each term."""
    frequencies = np.zeros(n_terms, np.int64)
    for row in range(len(postings.starts)):
        start, size, first = postings.starts[row], postings.sizes[row], offsets[postings.segments[row]]
        frequencies[postings.terms[row]] += size
        if any_dead:
            for local in postings.flat[start : start + size]:
                frequencies[postings.terms[row]] -= dead[first + local]
    return frequencies


@jit
def _impact(postings: Postings, row: int, offset: int, weight: float, norm: _Norm) -> float:
    """The score that a term adds to the chunk at `offset` of `postings.flat`, in the list `row`."""
    frequency = np.float64(postings.flat[offset + postings.sizes[row]])
    length = np.float64(postings.flat[offset + 2 * postings.sizes[row]])
    return weight * (frequency * norm.factor / (frequency + norm.constant + norm.per_term * length))


@jit
def _find_best(
    postings: Postings, weights: Scores, norm: _Norm, offsets: Numbers, excluded: Mask, k: int, max_ties: int
) -> tuple[Numbers, Numbers, Scores]:
    accumulator, best = new_accumulator(offsets), new_best_chunks(k, max_ties)
    count = row = 0
    while row < len(postings.starts):
        first_row, segment = row, postings.segments[row]
        while row < len(postings.starts) and postings.segments[row] == segment:
            weight, start = weights[postings.terms[row]], postings.starts[row]
            for offset in range(start, start + postings.sizes[row]):
                accumulator[postings.flat[offset]] += _impact(postings, row, offset, weight, norm)
            row += 1
        count = collect_segment(accumulator, postings, first_row, row, offsets, excluded, best, count, k + max_ties)
    return take_best(best, count, k + max_ties)


@jit
def new_accumulator(offsets: Numbers) -> Scores:
    """Zeros, one for each chunk of the largest segment."""
    return np.zeros(np.diff(offsets).max() if len(offsets) > 1 else 0, np.float64)


@jit
def new_best_chunks(k: int, max_ties: int) -> BestChunks:
    capacity = 2 * k + max_ties
    return BestChunks(
        np.zeros(k), np.empty(capacity, np.int64), np.empty(capacity, np.int64), np.empty(capacity, np.float64)
    )


@jit
def collect_segment(
    accumulator: Scores,
    postings: Postings,
    first_row: int,
    end_row: int,
    offsets: Numbers,
    excluded: Mask,
    best: BestChunks,
    count: int,
    max_count: int,
) -> int:
    """Adds those chunks of a segment to `best` that can still be among the best. Resets the accumulator to zeros.

    The rows from `first_row` to `end_row` are the segment's posting lists. `best` holds `count` chunks. When it is
    full, its worst chunks are dropped, and at most `max_count` remain. Returns the new count.
    """
    segment = postings.segments[first_row]
    first, n_chunks = offsets[segment], offsets[segment + 1] - offsets[segment]
    if postings.sizes[first_row:end_row].sum() > n_chunks:
        return _collect_chunks(accumulator, np.arange(n_chunks), segment, first, excluded, best, count, max_count)
    for row in range(first_row, end_row):
        start = postings.starts[row]
        local_numbers = postings.flat[start : start + postings.sizes[row]]
        count = _collect_chunks(accumulator, local_numbers, segment, first, excluded, best, count, max_count)
    return count


@jit
def _collect_chunks(
    accumulator: Scores,
    local_numbers: LocalNumbers,
    segment: int,
    first: int,
    excluded: Mask,
    best: BestChunks,
    count: int,
    max_count: int,
) -> int:
    lowest = best.heap[0]
    for local in local_numbers:
        score = accumulator[local]
        accumulator[local] = 0.0
        if score < lowest or score == 0.0 or excluded[first + local]:
            continue
        if count == len(best.scores):
            count = _drop_worst(best.segments, best.local_numbers, best.scores, count, lowest, max_count)
        best.segments[count], best.local_numbers[count], best.scores[count] = segment, local, score
        count += 1
        if score > lowest:
            _replace_lowest(best.heap, score)
            lowest = best.heap[0]
    return count


@jit
def take_best(best: BestChunks, count: int, max_count: int) -> tuple[Numbers, Numbers, Scores]:
    """Segments, local numbers and scores of the best of the first `count` chunks, at most `max_count`."""
    count = _drop_worst(best.segments, best.local_numbers, best.scores, count, best.heap[0], max_count)
    return best.segments[:count], best.local_numbers[:count], best.scores[:count]


@jit
def _replace_lowest(heap: Scores, score: float) -> None:
    """Replaces the top of the heap, its lowest score, by a higher one."""
    position = 0
    while True:
        child = 2 * position + 1
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if child >= len(heap) or score <= heap[child]:
            break
        heap[position] = heap[child]
        position = child
    heap[position] = score


@jit
def _drop_worst(
    segments: Numbers, local_numbers: Numbers, scores: Scores, count: int, lowest: float, max_count: int
) -> int:
    """Moves the chunks with scores above `lowest` to the front, and as many that equal it as `max_count` permits.

    Returns the count of chunks that remain.
    """
    ties = max_count - np.count_nonzero(scores[:count] > lowest)
    remaining = 0
    for row in range(count):
        if scores[row] < lowest or (scores[row] == lowest and ties == 0):
            continue
        ties -= scores[row] == lowest
        segments[remaining], local_numbers[remaining], scores[remaining] = (
            segments[row],
            local_numbers[row],
            scores[row],
        )
        remaining += 1
    return remaining


@jit
def _score_chunks(
    postings: Postings, weights: Scores, norm: _Norm, segments: Numbers, local_numbers: Numbers
) -> Scores:
    scores = np.zeros(len(segments), np.float64)
    for chunk in range(len(segments)):
        row = np.searchsorted(postings.segments, segments[chunk])
        while row < len(postings.starts) and postings.segments[row] == segments[chunk]:
            start = postings.starts[row]
            listed_numbers = postings.flat[start : start + postings.sizes[row]]
            index = np.searchsorted(listed_numbers, local_numbers[chunk])
            if index < len(listed_numbers) and listed_numbers[index] == local_numbers[chunk]:
                scores[chunk] += _impact(postings, row, start + index, weights[postings.terms[row]], norm)
            row += 1
    return scores
