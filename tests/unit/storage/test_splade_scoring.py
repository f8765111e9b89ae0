"""SPLADE's posting lists, and dot products over them."""

from collections.abc import Sequence
from uuid import UUID

import numpy as np
import pytest
from segments import lists, ranges

from rag_core.storage.lexical.chunks import Chunks, mask_ranges
from rag_core.storage.lexical.kinds import SPLADE
from rag_core.storage.lexical.postings import join_lists
from rag_core.storage.lexical.segment import MAX_VALUE, WEIGHT_STEP, Segment, SegmentDocument, build_segments
from rag_core.storage.lexical.splade_scoring import find_best, score_chunks
from rag_core.storage.lexical.term_lists import TermLists
from rag_core.types import TermWeights

WORDS = [f"w{rank}" for rank in range(40)]
Weighted = dict[str, float]


def weights(weights_by_term: Weighted) -> TermWeights:
    return TermWeights(tuple(weights_by_term), np.array(list(weights_by_term.values()), np.float32))


def segment(*documents: Sequence[Weighted]) -> Segment:
    (built,) = build_segments(
        (
            SegmentDocument(UUID(int=number), 1, "", [UUID(int=1)] * len(chunks), [weights(chunk) for chunk in chunks])
            for number, chunks in enumerate(documents)
        ),
        SPLADE,
    )
    return built


def table(segment: Segment, term: str) -> list[list[int]]:
    return np.frombuffer(lists(segment)[term], "<u2").reshape(2, -1).tolist()


def quantise_weight(weight: float) -> float:
    return min(round(float(np.float32(weight)) / WEIGHT_STEP), MAX_VALUE) * WEIGHT_STEP


def rank_chunks(
    segments: Sequence[Segment], question: Weighted, k: int = 1000, left_out: Sequence[tuple[int, int, int]] = ()
) -> dict[tuple[int, int], float]:
    """Scores by (segment, local number), best first."""
    counts = np.array([sum(row.n_chunks for row in segment.documents) for segment in segments], np.int64)
    chunks = Chunks.from_counts(counts, ranges(()), 0, {"": int(counts.sum())})
    stored = list(map(lists, segments))
    term_lists = [
        TermLists.from_segments({n: by_term[term] for n, by_term in enumerate(stored) if term in by_term})
        for term in question
    ]
    postings, steps = (
        join_lists(term_lists, np.arange(len(segments)), SPLADE),
        np.array(list(question.values())) * WEIGHT_STEP,
    )
    places, locals, scores = find_best(chunks, postings, steps, mask_ranges(chunks.offsets, ranges(left_out)), k)
    assert score_chunks(postings, steps, places, locals).tolist() == scores.tolist()
    order = np.argsort(-scores, kind="stable").tolist()
    return {(int(places[n]), int(locals[n])): float(scores[n]) for n in order}


def corpus(seed: int, n_chunks: int) -> list[Weighted]:
    drawn = np.random.default_rng(seed)
    return [
        {WORDS[n]: drawn.exponential(0.7) for n in drawn.choice(40, drawn.integers(0, 20), replace=False)}
        for _ in range(n_chunks)
    ]


def test_a_posting_is_a_chunk_and_a_weight_in_steps() -> None:
    one = segment([{"red": 1.0, "fish": 0.5}, {"red": 2.00001}], [{"fish": 1.49 * WEIGHT_STEP}])
    assert table(one, "red") == [[0, 1], [8192, 16384]]
    assert table(one, "fish") == [[0, 2], [4096, 1]]
    assert [(row.first_local, row.n_chunks, row.total_length) for row in one.documents] == [(0, 2, 3), (2, 1, 1)]


def test_a_weight_of_less_than_half_a_step_is_left_out_and_the_largest_are_cut() -> None:
    one = segment([{"faint": 0.49 * WEIGHT_STEP, "loud": 9.5}])
    assert set(one.terms) == {"loud"}
    assert table(one, "loud") == [[0], [MAX_VALUE]]


def test_a_chunk_without_terms_keeps_its_number() -> None:
    one = segment([{}, {"red": 1.0}], [{}])
    assert [row.n_chunks for row in one.documents] == [2, 1]
    assert table(one, "red") == [[1], [8192]]
    assert segment([{}]).terms == []


@pytest.mark.parametrize("question", [{"w0": 1.0}, {"w3": 2.5, "w7": 0.01, "w29": 1.2}, dict.fromkeys(WORDS, 0.3)])
def test_scores_are_dot_products(question: Weighted) -> None:
    texts = corpus(seed=1, n_chunks=300)
    segments = [segment(texts[:100]), segment(texts[100:110], texts[110:299]), segment(texts[299:])]
    firsts = [0, 100, 299]
    scores = {firsts[place] + local: score for (place, local), score in rank_chunks(segments, question).items()}
    query_weights = np.array([question.get(word, 0.0) for word in WORDS])
    exact = np.array([[chunk.get(word, 0.0) for word in WORDS] for chunk in texts])
    stored = np.vectorize(quantise_weight)(exact) @ query_weights
    assert set(scores) == set(np.flatnonzero(stored).tolist())
    np.testing.assert_allclose([scores[n] for n in sorted(scores)], stored[sorted(scores)], rtol=1e-12)
    assert np.abs(stored - exact @ query_weights).max() <= query_weights.sum() * WEIGHT_STEP / 2 + 1e-6
    assert list(scores) == sorted(scores, key=lambda n: -stored[n])


def test_the_k_best_are_those_of_the_best_that_are_not_left_out() -> None:
    one = segment(corpus(seed=3, n_chunks=500))
    question = {"w2": 1.0, "w9": 0.4}
    passing = [score for (_, local), score in rank_chunks([one], question).items() if local >= 100]
    scores = rank_chunks([one], question, k=10, left_out=[(0, 0, 100)])
    assert list(scores.values())[:10] == passing[:10]


def test_unknown_terms_find_nothing() -> None:
    assert rank_chunks([segment([{"red": 1.0}])], {"blue": 1.0}) == {}
    assert rank_chunks([], {"red": 1.0}) == {}
