"""The choice of questions and grades from stored answers."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from fakes.replies import rated_reply

from rag_core.evaluation.asked_questions import grade_documents, is_liked, select_questions

FIRST, SECOND, GONE = (UUID(int=n) for n in (1, 2, 3))
ASKED = rated_reply("ans_1", cited_ids=(SECOND, FIRST, GONE))
LATER = rated_reply("ans_2", 13, cited_ids=(SECOND, FIRST, GONE))


@pytest.mark.parametrize(
    ("rated", "liked"),
    [
        ({"rating": 1}, True),
        ({"stars": 4}, True),
        ({"stars": 3}, False),
        ({"rating": -1, "stars": 5}, False),
        ({}, False),
    ],
)
def test_thumbs_count_more_than_stars(rated: dict[str, Any], liked: bool) -> None:
    assert is_liked(replace(ASKED, **rated)) is liked


@pytest.mark.parametrize(
    ("first", "later", "answer_id"),
    [
        ({}, {}, "ans_2"),
        ({"rating": 1}, {}, "ans_1"),
        ({"rating": 1}, {"rating": 1}, "ans_2"),
        ({"rating": -1, "corrected_answer": "Daily."}, {"rating": 1}, "ans_1"),
    ],
)
def test_a_question_has_the_answer_that_says_most(first: dict[str, Any], later: dict[str, Any], answer_id: str) -> None:
    same = replace(LATER, standalone="how  OFTEN?", **later)
    (question,) = select_questions([replace(ASKED, **first), same])
    assert (question.reply.id, question.times, question.origin["answer_id"]) == (answer_id, 2, answer_id)


def test_documents_that_a_liked_answer_cites_are_relevant() -> None:
    questions = select_questions([replace(ASKED, rating=1), replace(LATER, standalone="Why?", rating=-1)])
    assert grade_documents(questions, {FIRST: "keys", SECOND: "keys"}) == {"ans_1": ["keys"]}
    assert grade_documents(questions, {}) == {}
