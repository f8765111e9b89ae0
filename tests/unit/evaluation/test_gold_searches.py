"""The repeated searches for failed questions, with a scripted knowledge base and a retriever's facts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from jobs.gold_searches import GoldSearchTask, Target
from rag_core.errors import RetrievalError
from rag_core.evaluation.gold_search import Part, describe_search
from rag_core.evaluation.question import Question
from rag_core.retrieval.why import ChunkRank, Facts, LegFacts, StepFacts
from rag_core.settings import load_settings
from rag_core.storage.document_trace import DocumentTrace
from rag_core.types import Chunk

CHUNK = Chunk(id=UUID(int=2), document_id=UUID(int=1), ordinal=0, text="keys", start=0, end=4)
STORED = DocumentTrace(
    uri="file:///keys.md",
    collection="docs",
    status="completed",
    chunks=(CHUNK,),
    passing_chunks=frozenset([CHUNK.id]),
)
QUESTION = Question(id="q1", text="Where are the keys?", grades={"keys": 1})


def at(rank: int) -> ChunkRank:
    return ChunkRank(chunk=0, rank=rank, score=1.0)


def step(name: str, rank: int, passes: int = 10, reader: str = "k") -> StepFacts:
    return StepFacts(step=name, place=at(rank), passes=passes, reader=reader)


LEG = LegFacts(leg="dense", depth=100, place=at(30), handed_on=True)
LOST = Facts(stored=STORED, k=10, legs=(LEG,), steps=(step("fusion", 40),))
FOUND = replace(LOST, steps=(step("fusion", 2),), hit=at(2))


@pytest.mark.parametrize(
    ("steps", "part"),
    [
        ((step("fusion", 40),), "fusion"),
        ((step("dense", 30),), "pool"),
        ((step("fusion", 4, 20, "rerank"), step("rerank", 15)), "rerank"),
        ((step("fusion", 40, 20, "rerank"),), "fusion"),
        ((step("dense", 4, 20, "rerank"), step("rerank", 15)), "rerank"),
    ],
)
def test_the_last_step_that_is_known_lost_the_document(steps: tuple[StepFacts, ...], part: Part) -> None:
    assert describe_search("q1", replace(LOST, steps=steps)).part == part


def test_ranks_are_in_the_order_of_the_flow_and_0_without_one() -> None:
    search = describe_search("q1", LOST)
    assert list(search.ranks.items()) == [("dense", 30), ("fusion", 40), ("hits", 0)]
    assert search.loss.step == "k"


@dataclass
class ScriptedKnowledge:
    """Returns facts by the text that is searched, or raises an error. `searches` holds the texts."""

    facts: Mapping[str, Facts]
    searches: list[str] = field(default_factory=list)

    def why(self, question: str, *_: Any, **__: Any) -> Facts:
        self.searches.append(question)
        if question not in self.facts:
            raise RetrievalError("no leg answered")
        return self.facts[question]


def task(searched: str, rank: int | None = None) -> GoldSearchTask:
    target = Target(uri=STORED.uri, words="", searched=searched, rank=rank)
    return GoldSearchTask(settings=load_settings(environment={}), collection="docs", targets={"q1": target})


def test_the_user_s_own_question_is_searched_if_another_text_was() -> None:
    knowledge: Any = ScriptedKnowledge({"keys": LOST, QUESTION.text: FOUND})
    assert task("keys").run(knowledge, QUESTION).raw_rank == 2
    knowledge.searches.clear()
    assert task(QUESTION.text).run(knowledge, QUESTION).raw_rank == 0
    assert knowledge.searches == [QUESTION.text]


def test_a_search_that_fails_is_a_failure_of_the_legs() -> None:
    knowledge: Any = ScriptedKnowledge({})
    search = task("keys").run(knowledge, QUESTION)
    assert (search.loss.step, search.loss.reason, search.ranks) == ("leg", "RetrievalError: no leg answered", {})


@pytest.mark.parametrize(
    ("facts", "rank", "step", "raw_rank", "hits"),
    [
        (FOUND, 0, "variants", 2, 0),
        (FOUND, 4, "found", 0, 4),
        (LOST, 4, "found", 0, 4),
        (LOST, 0, "k", 0, 0),
    ],
)
def test_a_search_with_a_history_is_compared_with_that_of_the_question_alone(
    facts: Facts, rank: int, step: str, raw_rank: int, hits: int
) -> None:
    knowledge: Any = ScriptedKnowledge({QUESTION.text: facts})
    search = task(QUESTION.text, rank).run(knowledge, QUESTION)
    assert (search.loss.step, search.raw_rank, search.ranks["hits"]) == (step, raw_rank, hits)
