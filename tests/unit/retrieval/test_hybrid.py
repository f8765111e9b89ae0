"""Legs that answer, and legs that do not."""

import asyncio
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from drafts import SPACE, TENANT, draft
from fakes.corpus import MemoryCorpus
from fakes.legs import ScriptedLeg

from rag_core.errors import FilterError, NotFoundError, RetrievalError, StageTimeoutError, StoreError
from rag_core.protocols import Ranking
from rag_core.retrieval.fusion import fuse_distribution, fuse_rrf
from rag_core.retrieval.hybrid import Hybrid
from rag_core.retrieval.legs import LegRetriever, RetrieverLeg
from rag_core.stage import recording
from rag_core.types import Hit, Query, StageReport

NOTE = draft("file:///a.md", "one", "two", "three", "four")
ONE, TWO, THREE, FOUR = (chunk.id for chunk in NOTE.chunks)
QUERY = Query(text="which?", tenant=TENANT)
SOON = 0.02


def corpus() -> Any:
    memory = MemoryCorpus(tenant=TENANT, collection="default", space=SPACE)
    memory.publish([NOTE])
    return memory


def hybrid(legs: dict[str, Any], **settings: Any) -> Hybrid:
    return Hybrid(corpus=corpus(), legs=legs, **{"fusion": partial(fuse_distribution, weights={}), **settings})


def retrieve_with_reports(
    retriever: Any, k: int = 10, query: Query = QUERY
) -> tuple[list[Hit], dict[str, StageReport]]:
    async def retrieve_recorded() -> tuple[list[Hit], list[StageReport]]:
        with recording() as stages:
            return await retriever.retrieve(query, k), stages

    hits, stages = asyncio.run(retrieve_recorded())
    return hits, {report.stage: report for report in stages}


def ids(hits: list[Hit]) -> list[UUID]:
    return [hit.chunk.id for hit in hits]


DENSE = ScriptedLeg(scores={ONE: 0.9, TWO: 0.5, THREE: 0.1}, max_ranked=2)
BM25 = ScriptedLeg(scores={ONE: 1.0, TWO: 2.0, THREE: 9.0}, max_ranked=2)


def test_hits_have_the_scores_of_all_legs_even_of_those_that_did_not_find_them() -> None:
    hits, _ = retrieve_with_reports(hybrid({"dense": DENSE, "bm25": BM25}))
    scores_by_id = {hit.chunk.id: dict(hit.scores) for hit in hits}
    assert {id: (scores["dense"], scores["bm25"]) for id, scores in scores_by_id.items()} == {
        ONE: (0.9, 1.0),
        TWO: (0.5, 2.0),
        THREE: (0.1, 9.0),
    }
    assert [hit.score for hit in hits] == [hit.scores["fused"] for hit in hits]
    assert ids(hits) == [ONE, THREE, TWO]


def test_a_leg_scores_only_the_chunks_that_it_did_not_rank() -> None:
    dense, bm25 = (ScriptedLeg(scores=leg.scores, max_ranked=2) for leg in (DENSE, BM25))
    retrieve_with_reports(hybrid({"dense": dense, "bm25": bm25}))
    assert (dense.scored, bm25.scored) == ([[THREE]], [[ONE]])


def test_every_stage_reports_its_ranking() -> None:
    _, stages = retrieve_with_reports(hybrid({"dense": DENSE, "bm25": BM25}), k=2)
    assert stages["dense"].ranking == (ONE, TWO)
    assert stages["bm25"].ranking == (THREE, TWO)
    assert stages["fuse"].ranking == (ONE, THREE, TWO)
    assert stages["fetch"].ranking == (ONE, THREE)
    assert not [report for report in stages.values() if report.error]


def test_each_leg_returns_at_most_depth_candidates_but_at_least_k() -> None:
    legs = {"dense": ScriptedLeg(scores={ONE: 4, TWO: 3, THREE: 2, FOUR: 1})}
    _, stages = retrieve_with_reports(hybrid(legs, depth=2), k=1)
    assert stages["fuse"].ranking == (ONE, TWO)
    _, stages = retrieve_with_reports(hybrid(legs, depth=2), k=3)
    assert stages["fuse"].ranking == (ONE, TWO, THREE)


@pytest.mark.parametrize(
    ("broken", "reported"),
    [
        (ScriptedLeg(scores={}, seconds=60), "timeout after 0.020 s"),
        (ScriptedLeg(scores={}, error=StoreError("the server is gone")), "the server is gone"),
        (ScriptedLeg(scores={}, error=ZeroDivisionError("of somebody's own")), "ZeroDivisionError: of somebody's own"),
    ],
)
def test_if_a_leg_is_late_or_fails_the_others_answer_and_the_failure_is_reported(
    broken: ScriptedLeg, reported: str
) -> None:
    hits, stages = retrieve_with_reports(hybrid({"dense": DENSE, "bm25": broken}, timeouts={"bm25": SOON}))
    assert ids(hits) == [ONE, TWO]
    assert "bm25" not in hits[0].scores
    assert stages["bm25"].error == reported
    assert [report.stage for report in stages.values() if report.error] == ["bm25"]


def test_a_leg_that_cannot_score_the_hits_of_others_counts_with_its_lowest_score() -> None:
    broken = ScriptedLeg(scores=BM25.scores, max_ranked=2, score_error=StoreError("gone"))
    hits, stages = retrieve_with_reports(hybrid({"dense": DENSE, "bm25": broken}))
    lowest = ScriptedLeg(scores={**BM25.scores, ONE: 2.0}, max_ranked=2)
    assert [hit.score for hit in hits] == [
        hit.score for hit in retrieve_with_reports(hybrid({"dense": DENSE, "bm25": lowest}))[0]
    ]
    assert stages["bm25 scores"].error == "gone"
    assert (stages["bm25"].error, stages["bm25 scores"].parent) == ("", "fuse")


def test_if_no_leg_answers_the_error_names_all_their_errors() -> None:
    legs = {"dense": ScriptedLeg(scores={}, error=StoreError("gone")), "bm25": ScriptedLeg(scores={}, seconds=60)}
    with pytest.raises(RetrievalError, match=r"no leg answered: dense: gone; bm25: bm25 took longer than 0\.020 s"):
        retrieve_with_reports(hybrid(legs, timeout=SOON))


def test_if_every_leg_is_late_the_search_ran_out_of_time() -> None:
    legs = {name: ScriptedLeg(scores={}, seconds=60) for name in ("dense", "bm25")}
    with pytest.raises(StageTimeoutError, match=r"every leg took longer than 0\.020 s"):
        retrieve_with_reports(hybrid(legs, timeout=SOON))


@pytest.mark.parametrize("error", [FilterError("no such operator"), NotFoundError("no such collection")])
def test_an_error_in_the_question_is_raised_and_does_not_degrade_the_search(error: Exception) -> None:
    with pytest.raises(type(error), match="no such"):
        retrieve_with_reports(hybrid({"dense": DENSE, "bm25": ScriptedLeg(scores={}, error=error)}))


def test_legs_run_concurrently() -> None:
    async def retrieve() -> list[Hit]:
        meeting = asyncio.Barrier(2)

        class Waiting(ScriptedLeg):
            async def rank(self, query: Query, k: int) -> Ranking:
                await meeting.wait()
                return await super().rank(query, k)

        legs = {name: Waiting(scores={ONE: 1.0}) for name in ("dense", "bm25")}
        return await hybrid(legs, timeout=10).retrieve(QUERY, 10)

    assert ids(asyncio.run(retrieve())) == [ONE]


def test_legs_that_find_nothing_return_no_hits_and_no_error() -> None:
    hits, stages = retrieve_with_reports(hybrid({"dense": ScriptedLeg(scores={}), "bm25": ScriptedLeg(scores={})}))
    assert (hits, stages["fuse"].error, stages["fuse"].ranking) == ([], "", ())


def test_a_hybrid_can_be_a_leg_of_another() -> None:
    inner = hybrid({"dense": DENSE, "bm25": BM25})
    outer = hybrid(
        {"both": RetrieverLeg(inner), "splade": ScriptedLeg(scores={FOUR: 1.0})}, fusion=partial(fuse_rrf, k=60)
    )
    hits, stages = retrieve_with_reports(outer)
    assert ids(hits)[:2] == sorted([ONE, FOUR])
    assert (stages["dense"].parent, stages["both"].ranking) == ("both", (ONE, THREE, TWO))


def test_a_single_leg_can_be_a_retriever() -> None:
    hits, stages = retrieve_with_reports(LegRetriever(corpus(), "dense", DENSE))
    assert [(hit.chunk.text, hit.score, hit.scores) for hit in hits] == [
        ("one", 0.9, {"dense": 0.9}),
        ("two", 0.5, {"dense": 0.5}),
    ]
    assert stages["dense"].ranking == stages["fetch"].ranking == (ONE, TWO)
