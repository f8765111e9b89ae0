"""The way of a relevant document through a repeated search, as `rag why` explains it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from rag_core.retrieval.why import Facts, Verdict, verdict

Part: TypeAlias = Literal["pool", "fusion", "rerank"]
HITS = "hits"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldSearch:
    """The step that lost the document, and the document's rank at each step, in the order of the flow.

    Rank 0 means that a step did not rank it. `part` is the part of the retriever that contains the last step which is
    known: the legs, the fusion, or a later step. `raw_rank` is the rank among the hits of the user's own question, if
    another text was searched; 0 if that search does not find it, either.
    """

    question: str
    loss: Verdict
    ranks: Mapping[str, int] = field(default_factory=dict)
    part: Part = "pool"
    raw_rank: int = 0


def describe_search(question: str, facts: Facts, raw: Facts | None = None) -> GoldSearch:
    """`raw` are the facts of the search for the user's own question, if another text was searched."""
    ranks = {leg.leg: leg.place.rank for leg in facts.legs}
    ranks |= {step.step: step.place.rank for step in facts.steps}
    part: Part = "pool"
    if facts.steps and facts.steps[-1].step == "fusion":
        part = "fusion"
    elif len(facts.steps) > 1:
        part = "rerank"
    return GoldSearch(
        question=question,
        loss=verdict(facts),
        ranks={**ranks, HITS: facts.hit.rank} if ranks else {},
        part=part,
        raw_rank=raw.hit.rank if raw else 0,
    )


def describe_conversation_search(question: str, facts: Facts, rank: int) -> GoldSearch:
    """`facts` are those of the search for the question alone, and `rank` is that in the search with its history."""
    search = describe_search(question, facts, facts)
    if rank:
        loss = Verdict(step="found", reason=f"it is hit {rank} of the {facts.k} requested")
        return replace(search, loss=loss, ranks={**search.ranks, HITS: rank}, raw_rank=0)
    if facts.hit.rank:
        loss = Verdict(step="variants", reason="the history's variants rank other chunks higher")
        return replace(search, loss=loss, ranks={**search.ranks, HITS: 0})
    return search
