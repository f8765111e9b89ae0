"""The failed questions of an evaluation, counted by the step that lost their answers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from rag_core.evaluation.failures import LABELS, Failure, label_failure
from rag_core.evaluation.gold_search import HITS, GoldSearch
from rag_core.evaluation.outcomes import Outcome

MAX_EXAMPLES = 5
"""The number of examples of each label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedQuestion:
    outcome: Outcome
    failure: Failure
    ranks: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """The failures, in the order of the questions. `questions` counts those that ended without an error."""

    questions: int
    failed: Sequence[FailedQuestion]

    @property
    def counts(self) -> dict[str, int]:
        """The failures by label, in the order of the flow, without zeros."""
        counts = Counter(failed.failure.label for failed in self.failed)
        return {label: counts[label] for label in LABELS if counts[label]}

    @property
    def labels(self) -> dict[str, str]:
        """The label by failed question."""
        return {failed.outcome.question.id: failed.failure.label for failed in self.failed}

    @property
    def examples(self) -> list[FailedQuestion]:
        """The worst questions of each label, the worst first: by token F1, then by the rank of a relevant chunk."""
        shown: Counter[str] = Counter()
        examples = []
        for failed in sorted(self.failed, key=_badness):
            shown[failed.failure.label] += 1
            if shown[failed.failure.label] <= MAX_EXAMPLES:
                examples.append(failed)
        return examples


def build_waterfall(outcomes: Sequence[Outcome], searches: Mapping[str, GoldSearch]) -> Waterfall:
    """`searches` holds, by question, the search of each failed question with a stored relevant document."""
    failed = []
    for outcome in outcomes:
        if outcome.is_failure:
            search = searches.get(outcome.question.id)
            ranks = search.ranks if search else {}
            failed.append(FailedQuestion(outcome=outcome, failure=label_failure(outcome, search), ranks=ranks))
    return Waterfall(questions=len(outcomes), failed=failed)


def waterfall_to_json(waterfall: Waterfall) -> dict[str, Any]:
    return {
        "questions": waterfall.questions,
        "failed": len(waterfall.failed),
        "labels": waterfall.counts,
        "examples": [
            {
                "question": failed.outcome.question.id,
                "text": failed.outcome.question.text,
                "label": failed.failure.label,
                "detail": failed.failure.detail,
                "ranks": {stage: rank or None for stage, rank in failed.ranks.items()},
                "passages": failed.outcome.reached if failed.outcome.answer else None,
            }
            for failed in waterfall.examples
        ],
    }


def _badness(failed: FailedQuestion) -> tuple[float, float]:
    return failed.outcome.measures.get("token_f1", 0.0), -(failed.ranks.get(HITS, 0) or inf)
