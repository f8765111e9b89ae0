"""BM25 over posting lists, compiled: exact, term by term into one accumulator a segment, the best kept in a heap.

A chunk's score: the sum, over the question's terms, of idf * f * (k1 + 1) / (f + k1 * (1 - b + b * length / average)),
f being how often the chunk has the term (Robertson et al., Okapi at TREC-3; as rank_bm25 and bm25s compute it).
"""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rag_core.storage.lexical.chunks import NO_RANGES, Chunks, Mask
from rag_core.storage.lexical.compilation import compiled
from rag_core.storage.lexical.packing import Numbers
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.lexical.postings import Postings, joined
from rag_core.storage.lexical.segment import DTYPE
from rag_core.storage.lexical.term_lists import TermLists
from rag_core.text.analysis import Question

Scores: TypeAlias = NDArray[np.float64]
Locals: TypeAlias = NDArray[np.uint16] | NDArray[np.int64]

MOST_TIES = 1_000
"""So many chunks that score as the k-th does are told apart by their ids; which ones, if there are more, is chance."""


class Kept(NamedTuple):
    """The k best so far: `heap` has their scores, the least on top. Behind them the arrays have room for what ties with
    it, and for as many again, of which most go when the room is full."""

    heap: Scores
    segments: Numbers
    locals: Numbers
    scores: Scores


class _Norm(NamedTuple):
    """With `length` for each term of the chunk, what a frequency is divided by besides itself; and times what."""

    times: float
    flat: float
    length: float


def weights(chunks: Chunks, postings: Postings, question: Question) -> Scores:
    """Of each term: how often it counts in the question, times Lucene's idf, which is never negative.

    Where the collection has several languages, what counts is in how many chunks the word stands, as whatever term:
    one document said to be Spanish is no reason to take every English word of it for a rare one. A word is taken to
    stand in all chunks of the languages whose stop word it is. (Terms of one word as synonyms: Pirkola, The effects of
    query structure and dictionary setups in dictionary-based cross-language information retrieval, SIGIR 1998.)
    """
    n_terms = len(question.counts)
    having = _document_frequencies(postings, chunks.firsts, chunks.dead, chunks.living < len(chunks.dead), n_terms)
    if len(chunks.languages) > 1:
        having = np.minimum(_word_frequencies(having, question, chunks.languages), chunks.living)
    idf: Scores = np.log1p((chunks.living - having + 0.5) / (having + 0.5))
    return np.multiply(idf, list(question.counts.values()))


def _word_frequencies(having: Numbers, question: Question, languages: Mapping[str, int]) -> Numbers:
    """Of each term the greatest one of the words that it stands for."""
    numbers = {term: number for number, term in enumerate(question.counts)}
    frequencies = having.copy()
    for word in question.words:
        own = [numbers[term] for term in word.terms]
        total = having[own].sum() + sum(languages[language] for language in word.stopped)
        frequencies[own] = np.maximum(frequencies[own], total)
    return frequencies


def best(
    chunks: Chunks, postings: Postings, weights: Scores, bm25: Bm25, left_out: Mask, k: int
) -> tuple[Numbers, Numbers, Scores]:
    """Segments, local numbers and scores of the k best, and of up to MOST_TIES more that score as the k-th does;
    in no order. A chunk without any of the terms is none of them."""
    return _best(postings, weights, _norm(chunks, bm25), chunks.firsts, left_out, k, MOST_TIES)


def scores(
    chunks: Chunks, postings: Postings, weights: Scores, bm25: Bm25, segments: Numbers, locals: Numbers
) -> Scores:
    """To the bit what `best` gives those chunks, in the order given."""
    return _scores(postings, weights, _norm(chunks, bm25), segments, locals)


@cache
def compile_all() -> None:
    """What this machine has not compiled yet takes seconds: not while a question waits."""
    place, one, bm25 = np.zeros(1, np.int64), np.ones(1, np.int64), Bm25(1.5, 0.75)
    chunks = Chunks.of(one, NO_RANGES, 1, {"": 1})
    postings = joined([TermLists.by_segment({1: np.array([[0], [1], [1]], DTYPE).tobytes()})], one)
    weighted = weights(chunks, postings, Question({"a": 1}, ()))
    best(chunks, postings, weighted, bm25, chunks.dead, 1)
    scores(chunks, postings, weighted, bm25, place, place)


def _norm(chunks: Chunks, bm25: Bm25) -> _Norm:
    average = max(chunks.total_length, 1) / max(chunks.living, 1)
    return _Norm(bm25.k1 + 1.0, bm25.k1 * (1.0 - bm25.b), bm25.k1 * bm25.b / average)


@compiled
def _document_frequencies(postings: Postings, firsts: Numbers, dead: Mask, any_dead: bool, n_terms: int) -> Numbers:
    """In how many living chunks each term stands."""
    found = np.zeros(n_terms, np.int64)
    for row in range(len(postings.starts)):
        start, size, first = postings.starts[row], postings.sizes[row], firsts[postings.segments[row]]
        found[postings.terms[row]] += size
        if any_dead:
            for local in postings.flat[start : start + size]:
                found[postings.terms[row]] -= dead[first + local]
    return found


@compiled
def _impact(postings: Postings, row: int, place: int, weight: float, norm: _Norm) -> float:
    frequency = np.float64(postings.flat[place + postings.sizes[row]])
    length = np.float64(postings.flat[place + 2 * postings.sizes[row]])
    return weight * (frequency * norm.times / (frequency + norm.flat + norm.length * length))


@compiled
def _best(
    postings: Postings, weights: Scores, norm: _Norm, firsts: Numbers, left_out: Mask, k: int, most_ties: int
) -> tuple[Numbers, Numbers, Scores]:
    accumulator, kept = accumulating(firsts), keeping(k, most_ties)
    found = row = 0
    while row < len(postings.starts):
        begin, segment = row, postings.segments[row]
        while row < len(postings.starts) and postings.segments[row] == segment:
            weight, start = weights[postings.terms[row]], postings.starts[row]
            for place in range(start, start + postings.sizes[row]):
                accumulator[postings.flat[place]] += _impact(postings, row, place, weight, norm)
            row += 1
        found = collect(accumulator, postings, begin, row, firsts, left_out, kept, found, k + most_ties)
    return kept_best(kept, found, k + most_ties)


@compiled
def accumulating(firsts: Numbers) -> Scores:
    """Zeros for the chunks of the largest segment."""
    return np.zeros(np.diff(firsts).max() if len(firsts) > 1 else 0, np.float64)


@compiled
def keeping(k: int, most_ties: int) -> Kept:
    room = 2 * k + most_ties
    return Kept(np.zeros(k), np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.float64))


@compiled
def collect(
    accumulator: Scores,
    postings: Postings,
    begin: int,
    end: int,
    firsts: Numbers,
    left_out: Mask,
    kept: Kept,
    found: int,
    most: int,
) -> int:
    """Takes over from the scores of a segment, whose lists are those from `begin` to `end`, what may be of the best,
    and leaves zeros. How many are kept now."""
    segment = postings.segments[begin]
    first, n_chunks = firsts[segment], firsts[segment + 1] - firsts[segment]
    if postings.sizes[begin:end].sum() > n_chunks:
        return _collect(accumulator, np.arange(n_chunks), segment, first, left_out, kept, found, most)
    for row in range(begin, end):
        start = postings.starts[row]
        own = postings.flat[start : start + postings.sizes[row]]
        found = _collect(accumulator, own, segment, first, left_out, kept, found, most)
    return found


@compiled
def _collect(
    accumulator: Scores, locals: Locals, segment: int, first: int, left_out: Mask, kept: Kept, found: int, most: int
) -> int:
    least = kept.heap[0]
    for local in locals:
        score = accumulator[local]
        accumulator[local] = 0.0
        if score < least or score == 0.0 or left_out[first + local]:
            continue
        if found == len(kept.scores):
            found = _keep(kept.segments, kept.locals, kept.scores, found, least, most)
        kept.segments[found], kept.locals[found], kept.scores[found] = segment, local, score
        found += 1
        if score > least:
            _replace_least(kept.heap, score)
            least = kept.heap[0]
    return found


@compiled
def kept_best(kept: Kept, found: int, most: int) -> tuple[Numbers, Numbers, Scores]:
    found = _keep(kept.segments, kept.locals, kept.scores, found, kept.heap[0], most)
    return kept.segments[:found], kept.locals[:found], kept.scores[:found]


@compiled
def _replace_least(heap: Scores, score: float) -> None:
    place = 0
    while True:
        child = 2 * place + 1
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if child >= len(heap) or score <= heap[child]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = score


@compiled
def _keep(segments: Numbers, locals: Numbers, scores: Scores, found: int, least: float, most: int) -> int:
    """Moves to the front those above `least`, and as many that equal it as make up `most`. How many they are."""
    ties = most - np.count_nonzero(scores[:found] > least)
    kept = 0
    for place in range(found):
        if scores[place] < least or (scores[place] == least and ties == 0):
            continue
        ties -= scores[place] == least
        segments[kept], locals[kept], scores[kept] = segments[place], locals[place], scores[place]
        kept += 1
    return kept


@compiled
def _scores(postings: Postings, weights: Scores, norm: _Norm, segments: Numbers, locals: Numbers) -> Scores:
    found = np.zeros(len(segments), np.float64)
    for wanted in range(len(segments)):
        row = np.searchsorted(postings.segments, segments[wanted])
        while row < len(postings.starts) and postings.segments[row] == segments[wanted]:
            start = postings.starts[row]
            own = postings.flat[start : start + postings.sizes[row]]
            place = np.searchsorted(own, locals[wanted])
            if place < len(own) and own[place] == locals[wanted]:
                found[wanted] += _impact(postings, row, start + place, weights[postings.terms[row]], norm)
            row += 1
    return found
