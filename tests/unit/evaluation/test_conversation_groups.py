"""Questions grouped by their place in a conversation, and two ways of searching compared."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from rag_core.evaluation.conversation_groups import compare_groups, summarize_groups
from rag_core.evaluation.question import Question
from rag_core.evaluation.stages import JudgedQuestion, Trace, judge_question
from rag_core.types import Message, StageReport

DOCUMENTS = {UUID(int=n): f"d{n}" for n in range(3)}
UNKNOWN: Mapping[str, float] = {}


def judge(id: str, turn: int, rank: int, figures: Mapping[str, float] = UNKNOWN) -> JudgedQuestion:
    """A question whose only relevant document has this rank from 1."""
    history = tuple(Message(role="user", text=f"{n}?") for n in range(turn - 1))
    ranking = tuple(DOCUMENTS)
    stages = (StageReport(stage="understand", seconds=0.0, figures=figures),)
    question = Question(id=id, text="?", grades={f"d{rank - 1}": 1}, history=history)
    return judge_question(
        question, Trace(question=id, ranking=ranking, stages=stages, seconds=0.0), DOCUMENTS, frozenset()
    )


def test_questions_are_grouped_by_turn_and_later_turns_are_one_group() -> None:
    groups = summarize_groups([judge("a", 1, 1), judge("b", 6, 2), judge("c", 2, 1), judge("d", 4, 1)])
    assert {name: group.questions for name, group in groups.items()} == {"turn 1": 1, "turn 2": 1, "turn 4+": 2}
    assert groups["turn 4+"].measures["mrr"].mean == 0.75


def test_questions_without_histories_have_no_groups() -> None:
    assert summarize_groups([judge("a", 1, 1), judge("b", 1, 2)]) == {}


def test_follow_ups_are_those_that_a_stage_recorded() -> None:
    questions = [judge("a", 1, 1), judge("b", 2, 1, {"follow_up": 1.0}), judge("c", 2, 1, {"follow_up": 0.0})]
    groups = summarize_groups(questions)
    assert {name: group.questions for name, group in groups.items()} == {
        "turn 1": 1,
        "turn 2": 2,
        "follow-up": 1,
        "no follow-up": 1,
    }


def test_ways_of_searching_are_compared_by_group_whichever_recorded_the_follow_ups() -> None:
    raw = [judge("a", 1, 1), judge("b", 2, 3), judge("c", 2, 1)]
    fused = [judge("a", 1, 1), judge("b", 2, 1, {"follow_up": 1.0}), judge("c", 2, 2, {"follow_up": 0.0})]
    rows = {row.group: row for row in compare_groups("raw", raw, fused)}
    assert list(rows) == ["all", "turn 1", "turn 2", "follow-up", "no follow-up"]
    assert (rows["follow-up"].base, rows["follow-up"].candidate) == (0.5, 1.0)
    assert (rows["all"].comparison.better, rows["all"].comparison.worse, rows["all"].comparison.equal) == (1, 1, 1)
    assert rows["all"].over == "raw"
    assert {row.group: row.questions for row in compare_groups("fused", fused, raw)}["follow-up"] == 1
    assert rows["no follow-up"].comparison.difference.mean == pytest.approx(0.6309 - 1, abs=1e-4)
