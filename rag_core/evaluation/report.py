"""What an evaluation found, for machines: plain values under the names of trec_eval's measures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_core.evaluation.dataset import Question, Run, trec_id
from rag_core.evaluation.metrics import distinct, ndcg, ranked
from rag_core.evaluation.significance import Estimate, estimates, randomisation_p
from rag_core.evaluation.stages import FINAL, TOP, UNION, Judged, Latency, StageSummary, losses, summaries

MEASURE = f"ndcg@{TOP}"
"""What is compared, and what headroom is told in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Of a ranking with another over the same questions, by nDCG@10; `p` is two-sided."""

    difference: Estimate
    p: float
    better: int
    worse: int
    equal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """Of a stage over the one that it was given; of fusion over the best leg."""

    stage: str
    over: str
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """`comparison` is None where there was nothing to compare with."""

    questions: Sequence[Judged]
    stages: Sequence[StageSummary]
    lost: Mapping[str, int]
    improvements: Sequence[Improvement]
    comparison: Comparison | None

    @property
    def failed(self) -> list[Judged]:
        return [each for each in self.questions if each.trace.error]

    @property
    def with_spans(self) -> list[Judged]:
        return [each for each in self.questions if each.answer.length]

    @property
    def in_no_chunk(self) -> list[Judged]:
        """Whose answer was not stored: chunks can hold nothing of it."""
        return [each for each in self.with_spans if not each.answer.held]

    @property
    def headroom(self) -> float | None:
        """By how much the best order of what the legs found would be better; None without several legs."""
        means = {each.stage: each.measures[MEASURE].mean for each in self.stages if MEASURE in each.measures}
        return means[UNION] - means[FINAL] if UNION in means else None


def evaluation(questions: Sequence[Judged], other: Run | None = None) -> Evaluation:
    return Evaluation(
        questions=questions,
        stages=summaries(questions),
        lost=losses(questions),
        improvements=improvements(questions),
        comparison=None if other is None else compared(questions, other),
    )


def answered(questions: Sequence[Question], other: Run) -> int:
    """How many of them the other run has something for."""
    return sum(trec_id(each.id) in other for each in questions)


def compared(questions: Sequence[Judged], other: Run) -> Comparison:
    """A question that the other run does not have counts as 0 there. It has its ids from a TREC file."""
    return _compared(_of_stage(questions, FINAL), np.array([_measured(other, each.question) for each in questions]))


def improvements(questions: Sequence[Judged]) -> list[Improvement]:
    """In the order of the flow. Who has no ranking of a stage counts as 0 there."""
    legs = sorted({leg for each in questions for leg in each.legs})
    if not legs:
        return []
    over = max(legs, key=lambda leg: float(_of_stage(questions, leg).mean()))
    found: list[Improvement] = []
    for stage in distinct(stage for each in questions for stage in each.behind if stage != FINAL):
        comparison = _compared(_of_stage(questions, stage), _of_stage(questions, over))
        found.append(Improvement(stage=stage, over=over, comparison=comparison))
        over = stage
    return found


def _of_stage(questions: Sequence[Judged], stage: str) -> NDArray[np.float64]:
    return np.array([each.measures.get(stage, {}).get(MEASURE, 0.0) for each in questions])


def _compared(own: NDArray[np.float64], theirs: NDArray[np.float64]) -> Comparison:
    difference = own - theirs
    (mean,) = estimates(difference[:, None])
    signs = np.sign(np.round(difference, 12))
    counts = {name: int((signs == sign).sum()) for name, sign in (("better", 1), ("worse", -1), ("equal", 0))}
    return Comparison(difference=mean, p=randomisation_p(own.tolist(), theirs.tolist()), **counts)


def _measured(other: Run, question: Question) -> float:
    grades = {trec_id(id): grade for id, grade in question.grades.items()}
    return ndcg(ranked(other.get(trec_id(question.id), {})), grades, TOP)


def as_json(found: Evaluation) -> dict[str, Any]:
    """Times in milliseconds, as everywhere on the wire."""
    return {
        "questions": len(found.questions),
        "questions_with_spans": len(found.with_spans),
        "answers_in_no_chunk": len(found.in_no_chunk),
        "stages": {each.stage: _stage(each) for each in found.stages},
        "headroom": found.headroom,
        "improvements": [asdict(each) for each in found.improvements],
        "lost": {place or "found": count for place, count in found.lost.items()},
        "comparison": asdict(found.comparison) if found.comparison else None,
        "failures": [{"question": each.question.id, "reason": each.trace.error} for each in found.failed],
    }


def _stage(summary: StageSummary) -> dict[str, Any]:
    return {
        "measures": {name: asdict(each) for name, each in summary.measures.items()},
        "chunk_measures": {name: asdict(each) for name, each in summary.chunk_measures.items()},
        "latency_ms": _milliseconds(summary.latency),
        "errors": summary.errors,
    }


def _milliseconds(latency: Latency | None) -> dict[str, float] | None:
    return {name: round(seconds * 1000, 3) for name, seconds in asdict(latency).items()} if latency else None
