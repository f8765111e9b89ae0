import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import nan
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest

from rag_core.contract import (
    QueryOptions,
    RetrievedChunk,
    embed_chunks,
    get_query_embedding,
    graph_search,
    hybrid_search,
    keyword_search,
    orchestration,
    pre_retrieval,
    rerank_chunks,
    retrieval,
    search_documents,
    store_document,
    vector_search,
)
from rag_core.errors import ModelError
from rag_core.storage.lexical import reading
from rag_core.storage.postgres import Postgres

pytestmark = pytest.mark.postgres

TEXTS = ["Keys are rotated every week.", "Locks are oiled in spring by Ada.", "Doors are painted by Ada and Bob."]
ABOUT = {"filename": "keys.pdf", "file_path": "/nowhere/keys.pdf", "file_size": 10, "kind": "memo"}
VECTOR_ONLY = QueryOptions(enable_keyword_search=False)
NOTHING = QueryOptions(enable_vector_search=False, enable_keyword_search=False)


class Lengths:
    """A reranker that prefers long texts, and records its questions."""

    def __init__(self) -> None:
        self.questions: list[str] = []

    async def score(self, question: str, texts: Sequence[str]) -> list[float]:
        self.questions.append(question)
        return [len(text) / 10 for text in texts]


class Broken:
    async def score(self, *_: object) -> list[float]:
        raise ConnectionError("nobody answers")


LENGTHS = Lengths()


def lengths() -> Lengths:
    return LENGTHS


def unreachable() -> Broken:
    return Broken()


@pytest.fixture
def shop(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> UUID:
    """Three chunks under the name `shop`."""
    environment = {"STORE__URL": store.dsn, "EMBEDDING__TYPE": "hashing", "EMBEDDING__DIMENSION": "64"}
    for name, value in environment.items():
        monkeypatch.setenv(f"RAG_{name}", value)
    return store_document("shop", embed_chunks(TEXTS), ABOUT)


def rerank_by(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("RAG_RETRIEVAL__TYPE", "reranked")
    monkeypatch.setenv("RAG_RETRIEVAL__RETRIEVER", '{"type": "dense"}')
    monkeypatch.setenv("RAG_RETRIEVAL__RERANKER", f'{{"type": "python", "object": "{__name__}:{name}"}}')


def texts(chunks: Sequence[RetrievedChunk]) -> list[str]:
    return [chunk.text for chunk in chunks]


def is_in_order(chunks: Sequence[RetrievedChunk]) -> bool:
    return all(before.similarity_score >= after.similarity_score for before, after in pairwise(chunks))


def make_chunks(*texts: str) -> list[RetrievedChunk]:
    return [
        RetrievedChunk(
            chunk_id=uuid4(), text=text, similarity_score=0.5, source="vector", metadata={"kind": text}, scores={}
        )
        for text in texts
    ]


def test_the_embedding_of_a_question_is_as_that_of_a_text(shop: UUID) -> None:
    [(_, vector)] = embed_chunks(["when are keys rotated"])
    assert get_query_embedding("when are keys rotated") == pytest.approx(vector)


def test_vector_search_finds_the_nearest_with_their_cosines_from_0_to_1(shop: UUID) -> None:
    best, *others = vector_search("shop", get_query_embedding(TEXTS[0]))
    assert (best.text, best.source, best.similarity_score) == (TEXTS[0], "vector", pytest.approx(1, abs=1e-3))
    assert best.metadata == {
        **{"uri": "file:///nowhere/keys.pdf", "title": "keys", "language": "en"},
        **ABOUT,
    }
    assert len(others) == 2
    assert is_in_order([best, *others])
    assert all(chunk.similarity_score == pytest.approx((1 + chunk.scores["dense"]) / 2) for chunk in others)
    assert vector_search("shop", get_query_embedding(TEXTS[0]), top_k=1) == [best]


@pytest.mark.parametrize("length", [1e-30, 2, 1e30])
def test_a_vector_of_any_length_finds_the_same(shop: UUID, length: float) -> None:
    vector = get_query_embedding(TEXTS[1])
    scaled = vector_search("shop", [length * number for number in vector])
    assert [chunk.similarity_score for chunk in scaled] == pytest.approx(
        [chunk.similarity_score for chunk in vector_search("shop", vector)], abs=1e-3
    )


@pytest.mark.parametrize(
    ("vector", "rule"),
    [([1.0, 0.0], "64 dimensions, got 2"), ([nan] * 64, "NaN"), ([0.0] * 64, "a length above 0")],
)
def test_a_vector_that_points_nowhere_is_refused(shop: UUID, vector: list[float], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        vector_search("shop", vector)


def test_keyword_search_finds_the_words_of_the_question(shop: UUID) -> None:
    [best] = keyword_search("shop", "who oils locks?")
    assert (best.text, best.source) == (TEXTS[1], "keyword")
    assert 0 < best.similarity_score < 1
    assert best.similarity_score == pytest.approx(best.scores["bm25"] / (1 + best.scores["bm25"]))
    assert keyword_search("shop", "zebras") == []


def test_graph_search_finds_what_is_mentioned_together_with_the_question(shop: UUID) -> None:
    chunks = graph_search("shop", "what of Bob?")
    assert texts(chunks) == [TEXTS[2], TEXTS[1]]  # the second by Ada, who is mentioned next to Bob
    assert {chunk.source for chunk in chunks} == {"graph"}
    assert is_in_order(chunks)
    assert graph_search("shop", "who is Grace?") == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda name: vector_search(name, [1.0] * 64),
        lambda name: keyword_search(name, "keys"),
        lambda name: graph_search(name, "keys"),
        lambda name: hybrid_search(name, "keys"),
        lambda name: search_documents(name, "keys"),
    ],
    ids=["vector", "keyword", "graph", "hybrid", "documents"],
)
def test_a_name_under_which_nothing_is_stored_is_a_value_error(shop: UUID, ask: Callable[[str], Any]) -> None:
    with pytest.raises(ValueError, match="no collection 'docs_none'"):
        ask("none")
    with pytest.raises(ValueError, match="name must be a word"):
        ask("two words")


def test_a_store_that_is_away_is_a_runtime_error(shop: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_STORE__URL", "host=/nonexistent user=nobody dbname=none")
    for ask in (lambda: keyword_search("shop", "keys"), lambda: hybrid_search("shop", "keys")):
        with pytest.raises(RuntimeError, match="shop cannot be searched: cannot use the store at"):
            ask()


def test_what_asks_for_nothing_is_refused(shop: UUID) -> None:
    with pytest.raises(ValueError, match="top_k must be >= 1, got 0"):
        keyword_search("shop", "keys", top_k=0)
    with pytest.raises(ValueError, match="question must not be empty"):
        hybrid_search("shop", " \n")
    with pytest.raises(ValueError, match="must enable vector, keyword or graph search"):
        hybrid_search("shop", "keys", NOTHING)


def test_hybrid_search_merges_the_methods_and_has_each_chunk_once(shop: UUID) -> None:
    result = hybrid_search("shop", "who oils locks?")
    assert result.chunks[0].text == TEXTS[1]
    assert sorted(texts(result.chunks)) == sorted(TEXTS)
    assert is_in_order(result.chunks)
    assert {chunk.source for chunk in result.chunks} == {"hybrid"}
    assert all({"dense", "bm25", "fused"} <= chunk.scores.keys() for chunk in result.chunks)
    first, third = 1, 61 / 63  # by BM25, and by a dense leg that only hashes
    assert result.chunks[0].similarity_score == pytest.approx((first + third) / 2)
    assert all(0 < chunk.similarity_score <= 1 for chunk in result.chunks)
    assert [stage.error for stage in result.stages] == [""] * len(result.stages)


def test_hybrid_search_by_one_method_says_which(shop: UUID) -> None:
    chunks = hybrid_search("shop", "of Bob", replace(NOTHING, enable_graph_search=True)).chunks
    assert texts(chunks) == [TEXTS[2], TEXTS[1]]
    assert {chunk.source for chunk in chunks} == {"graph"}


def test_hybrid_search_gives_at_most_40(shop: UUID) -> None:
    many = [f"It is key number {number}." for number in range(60)]
    store_document("many", embed_chunks(many), ABOUT)
    assert len(hybrid_search("many", "which key?").chunks) == 40


def test_a_method_that_fails_is_left_out_with_a_warning(
    shop: UUID, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*arguments: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(reading, "rank_by_words", fail)
    with caplog.at_level(logging.WARNING, "rag_core.contract"):
        result = hybrid_search("shop", TEXTS[0])
    assert result.chunks[0].text == TEXTS[0]
    assert [stage.stage for stage in result.stages if "the disk is gone" in stage.error] == ["bm25"]
    assert "searched shop without bm25" in caplog.text


def test_without_its_model_the_words_are_still_searched(shop: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_to_load(settings: object) -> None:
        raise ModelError("no weights")

    for module in (pre_retrieval, retrieval):
        monkeypatch.setattr(module, "load_shared_encoder", fail_to_load)
    assert texts(hybrid_search("shop", "who oils locks?").chunks) == [TEXTS[1]]
    with pytest.raises(RuntimeError, match=r"shop cannot be searched: .*no weights"):
        hybrid_search("shop", "who oils locks?", VECTOR_ONLY)
    with pytest.raises(RuntimeError, match="the question cannot be embedded: no weights"):
        get_query_embedding("who oils locks?")


def test_reranked_chunks_have_the_score_of_the_reranker_and_their_metadata(
    shop: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    rerank_by(monkeypatch, "lengths")
    chunks = make_chunks("short", "of middle length", "the longest text of all three")
    best, second = rerank_chunks("which?", chunks, top_k=2)
    assert (best.chunk_id, second.chunk_id) == (chunks[2].chunk_id, chunks[1].chunk_id)
    assert best.scores["rerank"] == pytest.approx(2.9)
    assert best.similarity_score == pytest.approx(1 / (1 + np.exp(-2.9)))
    assert (best.metadata, best.source) == (chunks[2].metadata, "vector")
    assert rerank_chunks("which?", [dict(chunk) for chunk in chunks], top_k=2) == [best, second]
    assert rerank_chunks("which?", []) == []


@pytest.mark.parametrize(
    ("reranker", "reason"), [("unreachable", "nobody answers"), ("", "the profile has no reranker")]
)
def test_chunks_that_cannot_be_reranked_stay_as_they_are_with_a_warning(
    shop: UUID, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reranker: str, reason: str
) -> None:
    monkeypatch.setenv("RAG_RETRIEVAL", '{"type": "dense"}')
    if reranker:
        rerank_by(monkeypatch, reranker)
    chunks = make_chunks("one", "two", "three")
    with caplog.at_level(logging.WARNING, "rag_core.contract"):
        assert rerank_chunks("which?", chunks, top_k=2) == chunks[:2]
    assert reason in caplog.text
    with pytest.raises(RuntimeError, match=reason):
        rerank_chunks("which?", chunks, strict=True)


def test_documents_are_searched_with_the_processed_and_reranked_by_the_original_question(
    shop: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    rerank_by(monkeypatch, "lengths")
    searched: list[str] = []
    hybrid = orchestration.hybrid_search
    monkeypatch.setattr(
        orchestration,
        "hybrid_search",
        lambda name, text, options: [searched.append(text), hybrid(name, text, options)][1],
    )
    chunks = search_documents("shop", "who  oils\nlocks?", QueryOptions(top_k=2))
    assert texts(chunks) == sorted(TEXTS, key=len)[::-1][:2]
    assert (searched, LENGTHS.questions[-1]) == (["who oils locks?"], "who  oils\nlocks?")


def test_documents_are_not_reranked_if_that_is_not_wanted(shop: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    rerank_by(monkeypatch, "lengths")
    options = QueryOptions(top_k=1, enable_reranking=False)
    assert texts(search_documents("shop", "who oils locks?", options)) == [TEXTS[1]]


def test_a_question_that_cannot_be_expanded_is_searched_as_it_is(shop: UUID, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rag_core.contract"):
        hits = search_documents("shop", "who oils locks?", QueryOptions(expand_query=True))
    assert hits[0].text == TEXTS[1]
    assert "the question is not expanded" in caplog.text


def test_with_a_missing_model_the_words_are_still_searched(
    shop: UUID, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("RAG_EMBEDDING__DIMENSION")
    monkeypatch.setenv("RAG_EMBEDDING__TYPE", "bert")
    monkeypatch.setenv("RAG_EMBEDDING__MODEL", "/nowhere/model")
    with caplog.at_level(logging.WARNING, "rag_core.contract"):
        result = hybrid_search("shop", "who oils locks?")
    assert texts(result.chunks) == [TEXTS[1]]
    assert [stage.stage for stage in result.stages if "/nowhere/model" in stage.error] == ["dense"]
    assert "searched shop without dense" in caplog.text
    with pytest.raises(RuntimeError, match=r"shop cannot be searched: .*/nowhere/model"):
        hybrid_search("shop", "who oils locks?", VECTOR_ONLY)


def test_a_question_that_is_too_long_to_search_for_is_a_value_error(shop: UUID) -> None:
    with pytest.raises(ValueError, match="shop cannot be searched: question must have at most 10000 characters"):
        hybrid_search("shop", "keys " * 2001)
