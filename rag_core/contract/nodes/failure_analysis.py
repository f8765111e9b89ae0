"""The node that labels failed questions with the step that lost their answers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from rag_core.config import Settings
from rag_core.contract.nodes.judging import read_answer
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.retrieval_evaluation import rank_results
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.evaluation.answer_measures import measure_answer
from rag_core.evaluation.answer_traces import JUDGE, trace_reply
from rag_core.evaluation.failures import LABELS, label_failure
from rag_core.evaluation.gold import has_gold_passage
from rag_core.evaluation.gold_search import GoldSearch, Part
from rag_core.evaluation.metrics import relevant_ids
from rag_core.evaluation.outcomes import Outcome
from rag_core.evaluation.question import Question
from rag_core.evaluation.stages import TOP_RANKS
from rag_core.retrieval.why import Verdict as Loss
from rag_core.settings import load_settings
from rag_core.types import Query, Reply, StageReport, Verdict

Ranks: TypeAlias = Mapping[str, int]
"""The rank of the best relevant document by step, in the order of the flow; 0 if a step lacks it."""


class FailureAnalysisConfig(NodeConfig):
    node_type: Literal["failure_analysis"] = "failure_analysis"


class FailureAnalysisNode:
    """Inputs: `queries` of DatasetNode, and lists of `results` by `query_id`. Outputs: `failures` and `categories`.

    A failure has `query_id`, `label` and `detail`; `categories` counts the labels of `rag evaluate`. More inputs, all
    by `query_id`, tell more labels apart: the `retrieval_results` and `fused_results` before the results, and
    `responses`, each with `response`, `context` and an optional `verdict`. A query can have `references` and
    `answerable`.
    """

    def __init__(self, config: FailureAnalysisConfig) -> None:
        self.config = config

    @as_node(lambda _: {"failures": [], "categories": {}})
    async def run(self, inputs: Inputs) -> Outputs:
        queries, results, settings = read_input(inputs, "queries"), read_input(inputs, "results"), load_settings()
        failures = []
        for query in queries:
            question, id = _read_question(query), query["query_id"]
            legs = inputs.get("retrieval_results", {}).get(id, {})
            fused = {"fusion": inputs["fused_results"].get(id, ())} if "fused_results" in inputs else {}
            ranks = {step: _best_rank(ranking, question) for step, ranking in {**legs, **fused}.items()}
            rank = _best_rank(results.get(id, ()), question)
            response = inputs.get("responses", {}).get(id)
            outcome = _answer_outcome(question, response, settings) if response else _search_outcome(question, rank)
            if outcome.is_failure:
                failure = label_failure(outcome, _describe_search(id, list(legs), ranks, rank))
                failures.append({"query_id": id, "label": failure.label, "detail": failure.detail})
        counts = Counter(failure["label"] for failure in failures)
        return {"failures": failures, "categories": {label: counts[label] for label in LABELS if counts[label]}}


def _read_question(query: Mapping[str, Any]) -> Question:
    return Question(
        id=query["query_id"],
        text=query["query"],
        grades=query["relevant"],
        references=tuple(query.get("references", ())),
        answerable=query.get("answerable"),
    )


def _best_rank(results: Sequence[Mapping[str, Any]], question: Question) -> int:
    ranking = rank_results(results, question.grades)
    return min((ranking.index(id) + 1 for id in relevant_ids(question.grades) if id in ranking), default=0)


def _search_outcome(question: Question, rank: int) -> Outcome:
    return Outcome(question=question, reached=0 < rank <= TOP_RANKS if relevant_ids(question.grades) else None)


def _answer_outcome(question: Question, response: Inputs, settings: Settings) -> Outcome:
    """The outcome of a response. Without a verdict, the judge counts as skipped."""
    answer, passages = read_answer(response, settings)
    verdict = response.get("verdict") or {}
    judged = Verdict(grade=verdict.get("grade", "unchecked"), score=verdict.get("score", 0.0))
    stages = () if verdict else (StageReport(stage=JUDGE, seconds=0.0, skipped="no verdict"),)
    query = Query(text=question.text)
    answer = replace(answer, verdict=judged)
    reply = Reply(query=query, standalone=question.text, answer=answer, passages=passages, stages=stages)
    trace, relevant = trace_reply(question.id, reply), relevant_ids(question.grades)
    return Outcome(
        question=question,
        reached=has_gold_passage(question, [(passage.uri, passage.text) for passage in trace.passages], {}),
        answer=measure_answer(question, trace),
        cites_relevant=any(cited.uri in relevant for cited in trace.citations),
    )


def _describe_search(id: str, legs: Sequence[str], ranks: Ranks, rank: int) -> GoldSearch:
    """The first step that lacks a relevant document among its results, or ranks it too low for the first hits."""
    if 0 < rank <= TOP_RANKS:
        return GoldSearch(question=id, loss=Loss(step="found", reason=f"it is result {rank}"))
    if legs and not any(ranks[leg] for leg in legs):
        return GoldSearch(question=id, loss=Loss(step="depth", reason="no retriever's results contain it"), ranks=ranks)
    part: Part = "rerank" if ranks else "pool"
    if "fusion" in ranks and not 0 < ranks["fusion"] <= TOP_RANKS:
        part = "fusion"
    reason = f"it is result {rank}" if rank else "the results do not contain it"
    return GoldSearch(question=id, loss=Loss(step="k", reason=reason), ranks=ranks, part=part)
