"""The questions of a dataset by their place in a conversation, and two ways to search them, compared by group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rag_core.evaluation.comparison import Comparison, compare_values
from rag_core.evaluation.significance import Estimate, Floats, estimates, holm
from rag_core.evaluation.stages import COMPARED_MEASURE, FINAL, JudgedQuestion

LAST_TURN = 4
"""The turn from which the questions of all later turns are one group."""
ALL, FOLLOW_UP, OTHER = "all", "follow-up", "no follow-up"
FOLLOW_UP_FIGURE = "follow_up"
"""The figure of a stage that is 1 for a question which the rules take for a follow-up, else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionGroup:
    """The measures of the hits of some questions."""

    questions: int
    measures: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupComparison:
    """The means of a group in nDCG@10, compared with those of the way of searching `over`.

    `adjusted_p` accounts for the number of groups.
    """

    over: str
    group: str
    questions: int
    base: float
    candidate: float
    comparison: Comparison
    adjusted_p: float


def summarize_groups(questions: Sequence[JudgedQuestion]) -> dict[str, QuestionGroup]:
    """The groups by turn, and by whether the question is a follow-up as far as that is known.

    Empty if no question has a history.
    """
    groups = {}
    for name, group in split_questions(questions, find_follow_ups(questions)).items():
        names = list(group[0].measures[FINAL])
        rows = np.array([[judged.measures[FINAL][measure] for measure in names] for judged in group])
        measures = dict(zip(names, estimates(rows), strict=True))
        groups[name] = QuestionGroup(questions=len(group), measures=measures)
    return groups


def split_questions(
    questions: Sequence[JudgedQuestion], follow_ups: Mapping[str, bool]
) -> dict[str, list[JudgedQuestion]]:
    """Groups such as `turn 1`, `turn 4+` and `follow-up`, without empty ones; none if no question has a history."""
    groups: dict[str, list[JudgedQuestion]] = {}
    if not any(judged.question.history for judged in questions):
        return groups
    for judged in sorted(questions, key=lambda judged: judged.question.turn):
        turn = judged.question.turn
        groups.setdefault(f"turn {turn}" if turn < LAST_TURN else f"turn {LAST_TURN}+", []).append(judged)
    for name, flag in ((FOLLOW_UP, True), (OTHER, False)):
        if group := [judged for judged in questions if follow_ups.get(judged.question.id) is flag]:
            groups[name] = group
    return groups


def find_follow_ups(questions: Sequence[JudgedQuestion]) -> dict[str, bool]:
    """Whether each question is a follow-up, by question; without questions of which nothing was recorded."""
    return {
        judged.question.id: report.figures[FOLLOW_UP_FIGURE] > 0
        for judged in questions
        for report in judged.trace.stages
        if FOLLOW_UP_FIGURE in report.figures
    }


def compare_groups(
    over: str, base: Sequence[JudgedQuestion], candidate: Sequence[JudgedQuestion]
) -> list[GroupComparison]:
    """Compares two ways of searching the same questions: all of them, and each group."""
    groups = {ALL: list(candidate), **split_questions(candidate, find_follow_ups(base) | find_follow_ups(candidate))}
    base_by_id = {judged.question.id: judged for judged in base}
    values = {
        name: (_read_values([base_by_id[judged.question.id] for judged in group]), _read_values(group))
        for name, group in groups.items()
    }
    comparisons = {name: compare_values(new, old) for name, (old, new) in values.items()}
    adjusted = holm({name: comparison.p for name, comparison in comparisons.items()})
    return [
        GroupComparison(
            over=over,
            group=name,
            questions=len(groups[name]),
            base=float(values[name][0].mean()),
            candidate=float(values[name][1].mean()),
            comparison=comparison,
            adjusted_p=adjusted[name],
        )
        for name, comparison in comparisons.items()
    ]


def _read_values(questions: Sequence[JudgedQuestion]) -> Floats:
    return np.array([judged.measures[FINAL][COMPARED_MEASURE] for judged in questions])
