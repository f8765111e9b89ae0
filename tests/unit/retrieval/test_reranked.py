"""The steps after a ranking: rerankers, signals, and the cap of hits of one document."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from drafts import TENANT, chunks
from fakes.legs import ScriptedReranker

from rag_core.errors import ModelError
from rag_core.retrieval.per_document import PerDocument
from rag_core.retrieval.reranked import Reranked
from rag_core.retrieval.signals import Recency, Signals
from rag_core.stage import recording
from rag_core.types import Hit, Origin, Query, StageReport, document_id

QUERY = Query(text="which?", tenant=TENANT)
TODAY = datetime(2026, 1, 31, tzinfo=UTC)


@dataclass
class Hits:
    """A retriever that always finds these."""

    hits: Sequence[Hit]

    async def retrieve(self, query: Query, k: int) -> list[Hit]:  # noqa: ARG002
        return list(self.hits[:k])


def hit(text: str, score: float, uri: str = "file:///a.md", days: float | None = None, **metadata: Any) -> Hit:
    (chunk,) = chunks(document_id(TENANT, "default", uri), [text])
    updated_at = None if days is None else TODAY - timedelta(days=days)
    origin = Origin(uri=uri, title="", updated_at=updated_at, metadata=metadata)
    return Hit(chunk=chunk, origin=origin, score=score, scores={"fused": score})


def retrieve_with_reports(retriever: Any, k: int = 10) -> tuple[list[Hit], list[StageReport]]:
    async def retrieve_recorded() -> tuple[list[Hit], list[StageReport]]:
        with recording() as stages:
            return await retriever.retrieve(QUERY, k), stages

    return asyncio.run(retrieve_recorded())


def texts(hits: Sequence[Hit]) -> list[str]:
    return [hit.chunk.text for hit in hits]


FOUND = Hits([hit("a", 4.0), hit("b x", 3.0), hit("c x x", 2.0), hit("d x x x", 1.0)])


def test_a_reranker_sorts_the_first_hits_and_the_others_follow() -> None:
    hits, (report,) = retrieve_with_reports(Reranked(retriever=FOUND, reranker=ScriptedReranker(word="x"), depth=3))
    assert texts(hits) == ["c x x", "b x", "a", "d x x x"]
    assert (hits[0].score, hits[0].scores) == (2.0, {"fused": 2.0, "rerank": 2.0})
    assert (report.stage, report.ranking) == ("rerank", tuple(hit.chunk.id for hit in hits))
    hits, _ = retrieve_with_reports(Reranked(retriever=FOUND, reranker=ScriptedReranker(word="x"), depth=2), k=4)
    assert texts(hits) == ["b x", "a", "c x x", "d x x x"]


def test_a_hit_below_k_can_be_reranked_to_the_top() -> None:
    hits, _ = retrieve_with_reports(Reranked(retriever=FOUND, reranker=ScriptedReranker(word="x"), depth=4), k=1)
    assert texts(hits) == ["d x x x"]


def test_the_reranker_reads_title_and_headings_before_the_text() -> None:
    prefixed = Hits([replace(hit, chunk=replace(hit.chunk, prefix="Title > Part")) for hit in FOUND.hits])
    reranker = ScriptedReranker(word="x")
    retrieve_with_reports(Reranked(retriever=prefixed, reranker=reranker, depth=1))
    assert reranker.read == ["Title > Part\na"]


@pytest.mark.parametrize(
    ("broken", "reported"),
    [
        (ScriptedReranker(word="x", seconds=60), "timeout after 0.020 s"),
        (ScriptedReranker(word="x", error=ModelError("no weights")), "no weights"),
        (ScriptedReranker(word="x", error=RuntimeError("out of memory")), "RuntimeError: out of memory"),
    ],
)
def test_if_the_reranker_is_late_or_fails_the_hits_keep_their_order_and_the_report_has_the_error(
    broken: ScriptedReranker, reported: str
) -> None:
    hits, (report,) = retrieve_with_reports(Reranked(retriever=FOUND, reranker=broken, depth=4, timeout=0.02), k=3)
    assert hits == FOUND.hits[:3]
    assert (report.stage, report.error) == ("rerank", reported)


def test_a_reranker_that_returns_too_few_scores_has_failed() -> None:
    class Forgetful:
        async def score(self, question: str, texts: Sequence[str]) -> list[float]:  # noqa: ARG002
            return [1.0]

    hits, (report,) = retrieve_with_reports(Reranked(retriever=FOUND, reranker=Forgetful(), depth=4))
    assert hits == FOUND.hits
    assert report.error == "the reranker must return one score per text, got 1 for 4"


def test_without_hits_the_reranker_is_not_called() -> None:
    reranker = ScriptedReranker(word="x", error=ModelError("never asked"))
    assert retrieve_with_reports(Reranked(retriever=Hits([]), reranker=reranker, depth=4)) == ([], [])


def test_the_recency_bonus_halves_with_each_half_life() -> None:
    retriever = Hits(
        [hit("old", 1.0, days=60), hit("new", 1.0, days=0), hit("undated", 1.0), hit("month", 1.0, days=30)]
    )
    signals = Signals(retriever=retriever, depth=10, recency=Recency(half_life=30, weight=0.8), now=lambda: TODAY)
    hits, (report,) = retrieve_with_reports(signals)
    assert [(hit.chunk.text, hit.score) for hit in hits] == [("new", 0.8), ("month", 0.4), ("old", 0.2), ("undated", 0)]
    assert (report.stage, report.ranking) == ("signals", tuple(hit.chunk.id for hit in hits))


def test_the_unit_of_signals_is_the_standard_deviation_of_the_scores() -> None:
    retriever = Hits([hit("a", 30.0), hit("b", 20.0), hit("c", 10.0, source="handbook", tags=["safety", "it"])])
    weights = {"source": {"handbook": 1.0}, "tags": {"safety": 0.5, "it": 0.25}}
    hits, _ = retrieve_with_reports(Signals(retriever=retriever, depth=10, weights=weights))
    unit = (3 / 2) ** 0.5
    assert {hit.chunk.text: hit.score for hit in hits} == pytest.approx({"a": unit, "b": 0, "c": 1.75 - unit})
    assert hits[0].scores == pytest.approx({"fused": 30.0, "signals": unit})


def test_a_boolean_is_weighted_as_filters_write_it() -> None:
    retriever = Hits([hit("draft", 1.0, approved=False), hit("final", 1.0, approved=True)])
    hits, _ = retrieve_with_reports(Signals(retriever=retriever, depth=10, weights={"approved": {"true": 0.5}}))
    assert [(hit.chunk.text, hit.score) for hit in hits] == [("final", 0.5), ("draft", 0.0)]


def test_language_title_and_uri_are_weighted_like_metadata() -> None:
    german, other = hit("german", 1.0, language="en"), hit("other", 1.0, uri="file:///b.md")
    german = replace(german, origin=replace(german.origin, language="de", title="Pumpe"))
    weights = {"language": {"de": 2.0, "en": 9.0}, "title": {"Pumpe": 0.5}, "uri": {"file:///b.md": 0.25}}
    hits, _ = retrieve_with_reports(Signals(retriever=Hits([other, german]), depth=10, weights=weights))
    assert [(hit.chunk.text, hit.score) for hit in hits] == [("german", 2.5), ("other", 0.25)]


def test_a_future_date_counts_as_today() -> None:
    retriever = Hits([hit("ahead", 1.0, days=-100)])
    signals = Signals(retriever=retriever, depth=10, recency=Recency(half_life=1, weight=0.5), now=lambda: TODAY)
    assert retrieve_with_reports(signals)[0][0].score == 0.5


def test_only_the_best_hits_of_a_document_are_kept() -> None:
    names = ["a1", "a2", "b1", "a3", "b2"]
    retriever = Hits([hit(name, 5.0 - n, uri=f"file:///{name[0]}.md") for n, name in enumerate(names)])
    hits, (report,) = retrieve_with_reports(PerDocument(retriever=retriever, max_hits=1, depth=10), k=2)
    assert texts(hits) == ["a1", "b1"]
    assert report.ranking == tuple(hit.chunk.id for hit in hits)
    assert texts(retrieve_with_reports(PerDocument(retriever=retriever, max_hits=2, depth=10), k=3)[0]) == [
        "a1",
        "a2",
        "b1",
    ]
