"""The choice of questions and grades from stored answers."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from rag_core.evaluation.asked_questions import grade_documents, is_liked, select_questions
from rag_core.storage.replies import RatedReply

FIRST, SECOND, GONE = (UUID(int=n) for n in (1, 2, 3))
ASKED = RatedReply(
    id="ans_1",
    question="How often?",
    standalone="How often are keys replaced?",
    collection="docs",
    profile="default",
    pipeline_version="default:v1+0",
    model="",
    chunk_ids=(FIRST, SECOND, GONE),
    cited_ids=(SECOND, FIRST, GONE),
    verdict="supported",
    confidence=None,
    finish="stop",
    prompt_tokens=0,
    completion_tokens=0,
    cached_tokens=0,
    seconds=1.0,
    created_at=datetime(2026, 11, 26, 12, tzinfo=UTC),
)
LATER = replace(ASKED, id="ans_2", created_at=datetime(2026, 11, 26, 13, tzinfo=UTC))


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
    ("first", "later", "chosen"),
    [
        ({}, {}, "ans_2"),
        ({"rating": 1}, {}, "ans_1"),
        ({"rating": 1}, {"rating": 1}, "ans_2"),
        ({"rating": -1, "corrected_answer": "Daily."}, {"rating": 1}, "ans_1"),
    ],
)
def test_a_question_has_the_answer_that_says_most(first: dict[str, Any], later: dict[str, Any], chosen: str) -> None:
    same = replace(LATER, standalone="how often  are keys REPLACED?", **later)
    (question,) = select_questions([replace(ASKED, **first), same])
    assert (question.reply.id, question.times, question.origin["answer_id"]) == (chosen, 2, chosen)


def test_documents_that_a_liked_answer_cites_are_relevant() -> None:
    questions = select_questions([replace(ASKED, rating=1), replace(LATER, standalone="Why?", rating=-1)])
    assert grade_documents(questions, {FIRST: "keys", SECOND: "keys"}) == {"ans_1": ["keys"]}
    assert grade_documents(questions, {}) == {}
