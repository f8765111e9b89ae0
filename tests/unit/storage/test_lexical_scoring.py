from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import numpy as np
import pytest
from example_counts import scale_examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import bm25s_scores, rank_bm25_scores
from segments import lists, ranges

from rag_core.storage.lexical.chunks import Chunks, mask_ranges
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.lexical.postings import Postings, join_lists
from rag_core.storage.lexical.scoring import MAX_TIES, find_best, score_chunks, term_weights
from rag_core.storage.lexical.segment import MAX_VALUE, Segment, SegmentDocument, build_segments
from rag_core.storage.lexical.term_lists import TermLists
from rag_core.text.analysis import Question

BM25 = Bm25(k1=1.5, b=0.75)
WORDS = [f"w{rank}" for rank in range(30)]


def ids_of(chunks: Sequence[object]) -> list[UUID]:
    return [UUID(int=number) for number, _ in enumerate(chunks)]


def segment(*documents: Sequence[str]) -> Segment:
    """A segment of documents, each of which is its chunks. Blanks separate the terms of a chunk."""
    (built,) = build_segments(
        SegmentDocument(UUID(int=number), 1, "en", ids_of(chunks), [chunk.split() for chunk in chunks])
        for number, chunks in enumerate(documents)
    )
    return built


def chunks(segments: Sequence[Segment], dead: Sequence[tuple[int, int, int]] = ()) -> Chunks:
    counts = np.array([n_chunks(segment) for segment in segments], np.int64)
    rows = {(place, row.first_local): row for place, segment in enumerate(segments) for row in segment.documents}
    gone = {(place, first) for place, first, _ in dead}
    living = [row for at, row in rows.items() if at not in gone]
    languages = {"en": sum(row.n_chunks for row in living)}
    return Chunks.from_counts(counts, ranges(dead), sum(row.total_length for row in living), languages)


def n_chunks(segment: Segment) -> int:
    return sum(row.n_chunks for row in segment.documents)


def postings(segments: Sequence[Segment], terms: Sequence[str]) -> Postings:
    """The index has segments of even ids, and knows lists of others, too."""
    stored = list(map(lists, segments))
    term_lists = [
        TermLists.from_segments(
            {7: b"other!"} | {2 * n: by_term[term] for n, by_term in enumerate(stored) if term in by_term}
        )
        for term in terms
    ]
    return join_lists(term_lists, np.arange(0, 2 * len(segments), 2))


def rank_chunks(
    segments: Sequence[Segment],
    question: str,
    k: int = 1000,
    dead: Sequence[tuple[int, int, int]] = (),
    left_out: Sequence[tuple[int, int, int]] = (),
    bm25: Bm25 = BM25,
) -> dict[tuple[int, int], float]:
    """Scores by (segment, local number), best first."""
    counts = Counter(question.split())
    corpus, posted = chunks(segments, dead), postings(segments, list(counts))
    heavy = term_weights(corpus, posted, Question(counts, ()))
    mask = corpus.dead | mask_ranges(corpus.offsets, ranges(left_out))
    places, locals, scores = find_best(corpus, posted, heavy, bm25, mask, k)
    again = score_chunks(corpus, posted, heavy, bm25, places, locals)
    assert again.tolist() == scores.tolist()
    order = np.argsort(-scores, kind="stable").tolist()
    return {(int(places[n]), int(locals[n])): float(scores[n]) for n in order}


def corpus(seed: int, n_chunks: int) -> list[str]:
    drawn = np.random.default_rng(seed)
    return [" ".join(WORDS[rank] for rank in np.minimum(drawn.zipf(1.3, size=drawn.integers(1, 60)), 30) - 1)
            for _ in range(n_chunks)]  # fmt: skip


@pytest.mark.parametrize("bm25", [BM25, Bm25(k1=0.9, b=0.4), Bm25(k1=0.1, b=0.0), Bm25(k1=2.0, b=1.0)])
@pytest.mark.parametrize("question", ["w0", "w3 w7 w29", "w5 w5 w1", "w2 nothing", "w0 w1 w2 w3 w4 w5 w6 w7"])
def test_scores_are_those_of_rank_bm25_and_bm25s(question: str, bm25: Bm25) -> None:
    texts = corpus(seed=1, n_chunks=300)
    segments = [segment(texts[:100]), segment(texts[100:110], texts[110:299]), segment(texts[299:])]
    firsts = [0, 100, 299]
    scores = {
        firsts[place] + local: score for (place, local), score in rank_chunks(segments, question, bm25=bm25).items()
    }
    terms = [text.split() for text in texts]
    for oracle in (rank_bm25_scores, bm25s_scores):
        expected = oracle(terms, question.split(), bm25)
        assert set(scores) == set(np.flatnonzero(expected).tolist())
        np.testing.assert_allclose([scores[n] for n in sorted(scores)], expected[sorted(scores)], rtol=1e-6)


def test_the_dead_count_for_nothing() -> None:
    texts = corpus(seed=2, n_chunks=90)
    segments = [segment(texts[:30], texts[30:60]), segment(texts[60:])]
    scores = rank_chunks(segments, "w3 w7", dead=[(0, 30, 30)])
    terms = [text.split() for text in texts[:30] + texts[60:]]
    expected = rank_bm25_scores(terms, ["w3", "w7"], BM25)
    got = {local if place == 0 else 30 + local: score for (place, local), score in scores.items()}
    assert set(got) == set(np.flatnonzero(expected).tolist())
    np.testing.assert_allclose([got[n] for n in sorted(got)], expected[sorted(got)], rtol=1e-12)


def test_excluded_chunks_are_not_found_but_count() -> None:
    one = segment(["red", "red red", "blue"])
    everything = rank_chunks([one], "red")
    assert rank_chunks([one], "red", left_out=[(0, 1, 1)]) == {(0, 0): everything[0, 0]}


def test_the_k_best_are_those_of_the_best_that_pass() -> None:
    one = segment(corpus(seed=3, n_chunks=500))
    everything = rank_chunks([one], "w2 w9")
    passing = {place: score for place, score in everything.items() if place[1] >= 100}
    scores = rank_chunks([one], "w2 w9", k=10, left_out=[(0, 0, 100)])
    assert list(scores.values())[:10] == list(passing.values())[:10]


def test_all_that_tie_with_the_last_are_found() -> None:
    segments = [segment(["red blue"] * 20 + ["red red"]), segment(["red blue"] * 20)]
    scores = rank_chunks(segments, "red", k=3)
    assert len(scores) == 41
    assert next(iter(scores)) == (0, 20)


def test_ties_are_limited_and_cost_nothing_that_is_better() -> None:
    one = segment(["red blue"] * 4000 + ["red red"] * 7)
    scores = rank_chunks([one], "red", k=10)
    assert len(scores) == 10 + MAX_TIES
    assert sorted(local for _, local in list(scores)[:7]) == list(range(4000, 4007))


def test_nothing_is_found_for_unknown_words_or_in_nothing() -> None:
    assert rank_chunks([segment(["red"])], "blue") == {}
    assert rank_chunks([], "red") == {}
    assert rank_chunks([segment(["red"])], "red", dead=[(0, 0, 1)]) == {}


def test_a_chunk_without_the_words_scores_nothing() -> None:
    one = segment(["red", "blue"])
    corpus, posted = chunks([one]), postings([one], ["red"])
    heavy = term_weights(corpus, posted, Question({"a": 1}, ()))
    scores = score_chunks(corpus, posted, heavy, BM25, np.array([0, 0]), np.array([1, 0]))
    assert scores[0] == 0 < scores[1]


@settings(max_examples=scale_examples(60), deadline=None)
@given(
    st.lists(st.lists(st.lists(st.sampled_from("abcde"), max_size=6).map(" ".join), min_size=1, max_size=4),
             min_size=1, max_size=5),
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4),
    st.integers(1, 5),
)  # fmt: skip
def test_any_split_into_segments_gives_the_same_scores(documents: list[list[str]], question: list[str], k: int) -> None:
    terms = [chunk.split() for document in documents for chunk in document]
    firsts = np.cumsum([0, *map(len, documents)])
    scores = rank_chunks([segment(document) for document in documents], " ".join(question), k=k)
    got = {int(firsts[place]) + local: score for (place, local), score in scores.items()}
    if not any(terms):
        assert got == {}
        return
    expected = rank_bm25_scores(terms, question, BM25)
    best_first = sorted((score for score in expected if score > 0), reverse=True)
    np.testing.assert_allclose(list(scores.values())[:k], best_first[:k], rtol=1e-9)
    np.testing.assert_allclose([got[n] for n in got], [expected[n] for n in got], rtol=1e-9)


def test_a_segment_numbers_chunks_document_by_document() -> None:
    built = segment(["a b a", "b"], ["c c"])
    assert [(row.first_local, row.n_chunks, row.total_length) for row in built.documents] == [(0, 2, 4), (2, 1, 2)]
    tables = {term: np.frombuffer(raw, "<u2").reshape(3, -1).tolist() for term, raw in lists(built).items()}
    assert tables == {"a": [[0], [2], [3]], "b": [[0, 1], [1, 1], [3, 1]], "c": [[2], [2], [2]]}


def test_frequencies_and_lengths_are_cut_to_16_bits() -> None:
    built = segment([" ".join(["a"] * (MAX_VALUE + 10))])
    assert np.frombuffer(built.postings, "<u2").tolist() == [0, MAX_VALUE, MAX_VALUE]
    assert [row.total_length for row in built.documents] == [MAX_VALUE]


@pytest.mark.slow
def test_a_new_segment_begins_before_the_numbers_run_out() -> None:
    half = [["a"]] * 40_000
    built = build_segments(SegmentDocument(UUID(int=n), 1, "en", ids_of(half), half) for n in range(3))
    assert [(n_chunks(segment), len(segment.documents)) for segment in built] == [(40_000, 1)] * 3
    small = build_segments(
        SegmentDocument(UUID(int=n), 1, "en", ids_of(half[:20_000]), half[:20_000]) for n in range(4)
    )
    assert [n_chunks(segment) for segment in small] == [60_000, 20_000]


def test_a_document_of_too_many_chunks_is_refused() -> None:
    long = [["a"]] * 65_537
    with pytest.raises(ValueError, match="65536 chunks"):
        build_segments([SegmentDocument(UUID(int=1), 1, "en", ids_of(long), long)])


def test_nothing_makes_no_segment() -> None:
    assert build_segments([]) == []
