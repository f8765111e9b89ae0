"""Verdicts on facts about one document."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from rag_core.retrieval.why import UNRANKED, ChunkRank, Facts, LegFacts, SpanFacts, StepFacts, verdict
from rag_core.storage.document_trace import DocumentTrace
from rag_core.types import Chunk

DOCUMENT = UUID(int=1)
CHUNK = Chunk(id=UUID(int=2), document_id=DOCUMENT, ordinal=0, text="keys", start=0, end=4)
STORED = DocumentTrace(
    uri="file:///keys.md",
    collection="default",
    status="completed",
    chunks=(CHUNK,),
    passing_chunks=frozenset([CHUNK.id]),
)
TWO_PAGES = replace(STORED, chunks=(CHUNK, replace(CHUNK, id=UUID(int=3), ordinal=1, text="locks")))
ABSENT = DocumentTrace(uri="file:///keys.md", collection="default")


def at(rank: int) -> ChunkRank:
    return ChunkRank(chunk=0, rank=rank, score=1 / (1 + rank))


def leg(name: str, rank: int, **changes: Any) -> LegFacts:
    place = {"place": at(rank)} if rank else {}
    return LegFacts(leg=name, **{"depth": 100, "weight": 0.5, "handed_on": 0 < rank <= 100, **place, **changes})


def step(name: str, rank: int, passes: int = 10, reader: str = "k", **changes: Any) -> StepFacts:
    return StepFacts(step=name, place=at(rank) if rank else UNRANKED, passes=passes, reader=reader, **changes)


def facts_of_loss(fused: int, *legs: LegFacts, **changes: Any) -> Facts:
    """A document that is not among the 10 hits."""
    return Facts(**{"stored": STORED, "k": 10, "legs": legs, "steps": (step("fusion", fused),), **changes})


def facts_with_reranker(fused: int, *legs: LegFacts, **changes: Any) -> Facts:
    """The same with a reranker that reads 20 hits."""
    return facts_of_loss(
        fused, *legs, steps=(step("fusion", fused, passes=20, reader="rerank"), *changes.pop("then", ())), **changes
    )


ALONE = facts_of_loss(1, leg("dense", 1))


@pytest.mark.parametrize(
    ("facts", "lost_at", "reason", "remedy"),
    [
        (replace(ALONE, stored=ABSENT), "never_stored", "no job has ever", "`rag ingest` a source that contains it"),
        (
            replace(ALONE, stored=replace(ABSENT, deleted=True, job=DOCUMENT)),
            "deleted",
            f"job {DOCUMENT} deleted it",
            "`rag ingest` its source again, if the source still contains it",
        ),
        (
            replace(ALONE, stored=replace(ABSENT, deleted=True)),
            "deleted",
            "deleted by command",
            "`rag ingest` its source again, if the source still contains it",
        ),
        (
            replace(ALONE, stored=replace(ABSENT, other_collections=("manuals", "old"))),
            "other_collection",
            "manuals and old",
            "--collection manuals",
        ),
        (
            replace(ALONE, stored=replace(ABSENT, status="failed", stage="parse", reason="no text layer")),
            "ingestion",
            "its status is failed, from stage parse: no text layer",
            "repair the document in its source, then `rag ingest`",
        ),
        (
            replace(ALONE, stored=replace(ABSENT, status="failed", stage="read", reason="away", retryable=True)),
            "ingestion",
            "its status is failed, from stage read: away",
            "`rag ingest` its source again: the document will be retried",
        ),
        (
            replace(ALONE, stored=replace(ABSENT, status="quarantined", stage="scan", reason="macros")),
            "ingestion",
            "its status is quarantined, from stage scan: macros",
            "`rag documents release` it, then `rag ingest`",
        ),
        (
            replace(ALONE, stored=replace(STORED, passing_chunks=frozenset())),
            "filter",
            "none of its 1 chunk passes",
            "search without --filter, or with a wider one",
        ),
        (
            replace(ALONE, stored=TWO_PAGES, span=SpanFacts(words="locks", whole=(1,))),
            "filter",
            "the filter excludes every chunk with the span: 1",
            "search without --filter, or with a wider one",
        ),
        (
            replace(ALONE, span=SpanFacts(words="the keys", parts=(3, 4))),
            "span",
            "chunks 3 and 4 contain parts",
            "a higher chunking.overlap or chunking.tokens, then `rag ingest`",
        ),
        (
            replace(ALONE, span=SpanFacts(words="the locks")),
            "span",
            "does not contain the span",
            "copy the span from the output of `rag documents text`",
        ),
        (
            facts_of_loss(0, leg("dense", 143), leg("bm25", 0)),
            "depth",
            "dense ranks it 143 and passes on 100; bm25 does not rank it",
            "a depth of 143 for dense",
        ),
        (
            facts_of_loss(0, leg("dense", 143), leg("bm25", 2, handed_on=False, error="timeout after 0.050 s")),
            "leg",
            "bm25 ranks it 2 but failed: timeout after 0.050 s",
            "an answer from bm25",
        ),
        (
            facts_of_loss(0, leg("dense", 143), leg("bm25", 0, unknown=True, error="no index")),
            "leg",
            "bm25 failed: no index",
            "an answer from bm25",
        ),
        (
            facts_of_loss(0, leg("dense", 7, handed_on=False)),
            "leg",
            "dense ranks it 7 but missed it: its index is approximate",
            "an answer from dense",
        ),
        (
            facts_of_loss(14, leg("dense", 90), leg("bm25", 2, weight=0.3, weight_needed=0.55)),
            "fusion",
            "bm25 ranks it 2 but weighs 0.30; the fusion ranks it 14 and passes on 10",
            "a weight of 0.55 for bm25",
        ),
        (
            facts_of_loss(14, leg("dense", 12), leg("bm25", 15)),
            "k",
            "fusion ranks it 14, and k is 10",
            "-k 14",
        ),
        (
            facts_of_loss(14, leg("dense", 90), leg("bm25", 2)),
            "k",
            "fusion ranks it 14, and k is 10",
            "-k 14",
        ),
        (
            facts_of_loss(5, leg("dense", 5), steps=(step("dense", 5), step("per_document", 0, most=2, in_document=3))),
            "max_chunks_per_document",
            "2 chunks of the document rank above it, and the limit is 2",
            "max_chunks_per_document 3",
        ),
        (
            facts_of_loss(50, leg("dense", 50), steps=(step("dense", 50, passes=30, reader="per_document"),)),
            "per_document_depth",
            "dense ranks it 50, and the limit per document reads 30",
            "per_document_depth 50",
        ),
        (
            facts_with_reranker(31, leg("dense", 30), leg("bm25", 40)),
            "rerank_depth",
            "fusion ranks it 31, and the reranker reads 20",
            "rerank_depth 31",
        ),
        (
            facts_with_reranker(31, leg("dense", 3, weight_needed=0.9), leg("bm25", 40)),
            "fusion",
            "dense ranks it 3 but weighs 0.50",
            "rerank_depth 31",
        ),
        (
            facts_with_reranker(4, leg("dense", 5), then=[step("rerank", 13)]),
            "rerank",
            "the reranker moved it from 4 to 13 and passes on 10",
            "-k 13",
        ),
        (
            facts_with_reranker(15, leg("dense", 15), then=[step("rerank", 13)]),
            "k",
            "reranker ranks it 13, and k is 10",
            "-k 13",
        ),
        (
            facts_of_loss(4, leg("dense", 4), steps=(step("dense", 4), step("signals", 12))),
            "signals",
            "the signals moved it from 4 to 12",
            "lower weights of the signals",
        ),
        (
            facts_of_loss(4, leg("dense", 4), steps=(step("dense", 4), step("diverse", 12))),
            "diverse",
            "the step diverse moved it from 4 to 12 and passes on 10",
            "other settings of diverse, or no diverse",
        ),
        (
            facts_of_loss(4, leg("dense", 4), steps=(step("dense", 4), step("diverse", 0))),
            "diverse",
            "the step diverse dropped it from rank 4",
            "other settings of diverse, or no diverse",
        ),
        (
            facts_of_loss(50, leg("dense", 50), steps=(step("dense", 50, passes=30, reader="diverse"),)),
            "diverse_depth",
            "dense ranks it 50, and the step diverse reads 30",
            "diverse_depth 50",
        ),
    ],
)
def test_the_verdict_names_the_first_step_that_lost_the_document_and_remedies(
    facts: Facts, lost_at: str, reason: str, remedy: str
) -> None:
    conclusion = verdict(facts)
    assert conclusion.step == lost_at
    assert reason in conclusion.reason
    assert remedy in conclusion.remedies


def test_a_document_among_the_hits_is_found_even_if_a_leg_missed_it() -> None:
    facts = replace(facts_of_loss(9, leg("dense", 143), leg("bm25", 4)), hit=at(9))
    assert verdict(facts).step == "found"
    assert verdict(facts).reason == "it is hit 9 of the 10 requested"


def test_a_retriever_whose_rankings_are_not_repeatable_is_unexplained() -> None:
    conclusion = verdict(facts_of_loss(3, leg("own", 3)))
    assert (conclusion.step, conclusion.remedies) == ("unexplained", ())
    assert "fusion ranks it high enough for a hit" in conclusion.reason


def test_the_stored_state_is_checked_before_the_rankings() -> None:
    """Each of these states alone loses the document; the verdict names the earliest."""
    filtered = replace(STORED, passing_chunks=frozenset())
    assert verdict(replace(ALONE, stored=filtered, span=SpanFacts(words="x"))).step == "filter"


def test_a_document_that_fails_now_is_searched_in_its_former_version() -> None:
    former = replace(STORED, status="failed", stage="read", reason="away", retryable=True)
    assert verdict(facts_of_loss(14, leg("dense", 12), stored=former)).step == "k"
