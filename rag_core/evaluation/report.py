"""The results of an evaluation, for machines: plain values under the names of trec_eval's measures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_core.evaluation.comparison import Comparison, compare_values
from rag_core.evaluation.conversation_groups import QuestionGroup, summarize_groups
from rag_core.evaluation.dataset import Run, trec_id
from rag_core.evaluation.metrics import ndcg, rank_ids, unique_ids
from rag_core.evaluation.question import Question
from rag_core.evaluation.stages import (
    COMPARED_MEASURE,
    FINAL,
    TOP_RANKS,
    UNION,
    JudgedQuestion,
    StageSummary,
    count_losses,
    summarize_stages,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """The improvement of a stage over the stage before it, and of fusion over the best leg."""

    stage: str
    over: str
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The results over all questions. `comparison` is None without another run to compare with.

    `groups` are those of conversations; empty without any.
    """

    questions: Sequence[JudgedQuestion]
    stages: Sequence[StageSummary]
    losses: Mapping[str, int]
    improvements: Sequence[Improvement]
    comparison: Comparison | None
    groups: Mapping[str, QuestionGroup] = field(default_factory=dict)

    @property
    def failed(self) -> list[JudgedQuestion]:
        return [question for question in self.questions if question.trace.error]

    @property
    def questions_with_spans(self) -> list[JudgedQuestion]:
        return [question for question in self.questions if question.answer.length]

    @property
    def answers_in_no_chunk(self) -> list[JudgedQuestion]:
        """The questions whose answer was not stored, so that no chunk contains any of it."""
        return [question for question in self.questions_with_spans if not question.answer.by_chunk]

    @property
    def headroom(self) -> float | None:
        """The gain that the best order of the union would bring; None unless there are several legs."""
        means = {
            stage.stage: stage.measures[COMPARED_MEASURE].mean
            for stage in self.stages
            if COMPARED_MEASURE in stage.measures
        }
        return means[UNION] - means[FINAL] if UNION in means else None


def build_evaluation(questions: Sequence[JudgedQuestion], other: Run | None = None) -> Evaluation:
    return Evaluation(
        questions=questions,
        stages=summarize_stages(questions),
        losses=count_losses(questions),
        improvements=improvements(questions),
        comparison=None if other is None else compare_run(questions, other),
        groups=summarize_groups(questions),
    )


def count_answered(questions: Sequence[Question], other: Run) -> int:
    """The number of questions that the other run has a ranking for."""
    return sum(trec_id(question.id) in other for question in questions)


def compare_run(questions: Sequence[JudgedQuestion], other: Run) -> Comparison:
    """Compares the hits with another run, whose ids are those of a TREC file. Questions that it lacks count as 0."""
    other_values = []
    for question in (judged.question for judged in questions):
        grades = {trec_id(id): grade for id, grade in question.grades.items()}
        other_values.append(ndcg(rank_ids(other.get(trec_id(question.id), {})), grades, TOP_RANKS))
    return compare_values(_stage_values(questions, FINAL), np.array(other_values))


def improvements(questions: Sequence[JudgedQuestion]) -> list[Improvement]:
    """The improvements of the later stages, in the order of the flow.

    A question without a ranking of a stage counts as 0.
    """
    legs = sorted({leg for question in questions for leg in question.question_legs})
    if not legs:
        return []
    previous = max(legs, key=lambda leg: float(_stage_values(questions, leg).mean()))
    results: list[Improvement] = []
    for stage in unique_ids(stage for question in questions for stage in question.later_stages if stage != FINAL):
        comparison = compare_values(_stage_values(questions, stage), _stage_values(questions, previous))
        results.append(Improvement(stage=stage, over=previous, comparison=comparison))
        previous = stage
    return results


def to_json(evaluation: Evaluation) -> dict[str, Any]:
    """The evaluation as JSON values. Times are in milliseconds, as everywhere on the wire."""
    stages = {}
    for stage in evaluation.stages:
        latency = stage.latency and {name: round(1000 * value, 3) for name, value in asdict(stage.latency).items()}
        stages[stage.stage] = {
            "measures": {name: asdict(estimate) for name, estimate in stage.measures.items()},
            "chunk_measures": {name: asdict(estimate) for name, estimate in stage.chunk_measures.items()},
            "latency_ms": latency,
            "errors": stage.errors,
        }
    return {
        "questions": len(evaluation.questions),
        "questions_with_spans": len(evaluation.questions_with_spans),
        "answers_in_no_chunk": len(evaluation.answers_in_no_chunk),
        "stages": stages,
        "headroom": evaluation.headroom,
        "improvements": [asdict(improvement) for improvement in evaluation.improvements],
        "lost": {place or "found": count for place, count in evaluation.losses.items()},
        "comparison": asdict(evaluation.comparison) if evaluation.comparison else None,
        "groups": {name: asdict(group) for name, group in evaluation.groups.items()},
        "failures": [{"question": failed.question.id, "reason": failed.trace.error} for failed in evaluation.failed],
    }


def _stage_values(questions: Sequence[JudgedQuestion], stage: str) -> NDArray[np.float64]:
    return np.array([question.measures.get(stage, {}).get(COMPARED_MEASURE, 0.0) for question in questions])
