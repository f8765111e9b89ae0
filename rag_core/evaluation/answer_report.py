"""The measures of all answers of a dataset: means with intervals, and how many questions they cover."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rag_core.evaluation.answer_measures import MeasuredAnswer
from rag_core.evaluation.answers import auroc_estimate
from rag_core.evaluation.metrics import unique_ids
from rag_core.evaluation.significance import Estimate, estimates
from rag_core.types import Finish

MIN_COVERAGE = 0.95
"""A run with a measure that covers less is invalid: the questions that are left out are not a random sample."""

KINDS: Mapping[Finish, str] = {
    "stop": "answer",
    "passages": "passages",
    "abstained": "refusal",
    "blocked": "refusal",
    "clarification": "refusal",
}
OTHER_KIND = "answer"
"""The kind of an answer that was cut or broken."""

ANSWERABLE, UNANSWERABLE, UNKNOWN, FAILED = "answerable", "unanswerable", "unknown", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSummary:
    """A measure over the questions that it applies to. `estimate` is None if it could not be computed for any."""

    estimate: Estimate | None
    count: int
    applicable: int

    @property
    def coverage(self) -> float:
        return self.count / self.applicable


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerEvaluation:
    """`replies` counts replies by kind, by whether the corpus answers the question.

    `abstention_auroc` is the probability that a question which the corpus answers has a higher confidence than one
    which it does not answer; None without questions of both kinds.
    """

    answers: Sequence[MeasuredAnswer]
    measures: Mapping[str, MeasureSummary]
    replies: Mapping[str, Mapping[str, int]]
    abstention_auroc: Estimate | None = None

    @property
    def coverage(self) -> float:
        """The lowest coverage of a measure."""
        return min((summary.coverage for summary in self.measures.values()), default=1.0)

    @property
    def is_valid(self) -> bool:
        return self.coverage >= MIN_COVERAGE


def evaluate_answers(answers: Sequence[MeasuredAnswer]) -> AnswerEvaluation:
    names = unique_ids(name for answer in answers for name in (*answer.measures, *answer.failures))
    return AnswerEvaluation(
        answers=answers,
        measures={name: _summarize(name, answers) for name in names},
        replies=_count_replies(answers),
        abstention_auroc=_estimate_auroc(answers),
    )


def answers_to_json(evaluation: AnswerEvaluation) -> dict[str, Any]:
    """The evaluation as JSON values. A mean that could not be computed is null."""
    return {
        "questions": len(evaluation.answers),
        "valid": evaluation.is_valid,
        "measures": {
            name: {
                **(asdict(summary.estimate) if summary.estimate else {"mean": None, "low": None, "high": None}),
                "coverage": summary.coverage,
                "questions": summary.applicable,
            }
            for name, summary in evaluation.measures.items()
        },
        "replies": evaluation.replies,
        "abstention_auroc": asdict(evaluation.abstention_auroc) if evaluation.abstention_auroc else None,
        "failures": [
            {"question": answer.question.id, "measure": name, "reason": reason}
            for answer in evaluation.answers
            for name, reason in answer.failures.items()
        ],
    }


def _summarize(name: str, answers: Sequence[MeasuredAnswer]) -> MeasureSummary:
    values = [answer.measures[name] for answer in answers if name in answer.measures]
    failed = sum(name in answer.failures for answer in answers)
    estimate = estimates(np.array([values], np.float64).T)[0] if values else None
    return MeasureSummary(estimate=estimate, count=len(values), applicable=len(values) + failed)


def _estimate_auroc(answers: Sequence[MeasuredAnswer]) -> Estimate | None:
    """A reply without a confidence counts as 0. Questions that failed are left out."""
    confidences: dict[bool, list[float]] = {True: [], False: []}
    for answer in answers:
        if answer.question.answerable is not None and not answer.trace.error:
            confidences[answer.question.answerable].append(answer.trace.confidence or 0.0)
    return auroc_estimate(confidences[True], confidences[False]) if all(confidences.values()) else None


def _count_replies(answers: Sequence[MeasuredAnswer]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for answer in answers:
        side = {True: ANSWERABLE, False: UNANSWERABLE, None: UNKNOWN}[answer.question.answerable]
        kind = FAILED if answer.trace.error else KINDS.get(answer.trace.finish, OTHER_KIND)
        counts.setdefault(side, Counter())[kind] += 1
    return {side: dict(kinds) for side, kinds in counts.items()}
