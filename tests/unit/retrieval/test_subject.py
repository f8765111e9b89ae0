"""The subjects of a conversation, and which one a question can refer to."""

import asyncio
from dataclasses import replace

import pytest

from rag_core.retrieval.query.rules import RuleUnderstander
from rag_core.retrieval.query.subject import select_subject, split_subjects
from rag_core.types import Message, Query, Understanding

KEYS = (
    Message(role="user", text="How often are the signing keys replaced?", standalone="How often ...?"),
    Message(role="assistant", text="Every 90 days. [1]", titles=("Rotation of signing keys",)),
)
DIVES = (
    Message(role="user", text="How long may a dive last?", standalone="How long ...?", is_shift=True),
    Message(role="assistant", text="25 minutes in cold water. [1]", titles=("The diving permit",)),
)
LOCKS = (
    Message(role="user", text="When is the lock closed?", standalone="When ...?", is_shift=True),
    Message(role="assistant", text="At spring tide. [1]", titles=("Lock times",)),
)


def understand(question: str, history: tuple[Message, ...]) -> Understanding:
    return asyncio.run(RuleUnderstander().understand(Query(text=question), history))


def test_a_subject_begins_with_the_message_that_changed_it() -> None:
    assert split_subjects([*KEYS, *DIVES, *LOCKS]) == [list(KEYS), list(DIVES), list(LOCKS)]
    assert split_subjects(KEYS) == [KEYS]
    assert split_subjects(DIVES) == [DIVES]
    assert split_subjects([]) == [[]]


def test_a_question_refers_to_the_current_subject() -> None:
    assert select_subject("And how often is that?", [*KEYS, *KEYS, *DIVES]) == list(DIVES)


@pytest.mark.parametrize("question", ["And who may touch the key?", "Who dives for it, and who rotates it?"])
def test_a_word_of_a_cited_title_names_its_subject_again(question: str) -> None:
    assert select_subject(question, [*KEYS, *DIVES]) == list(KEYS)


def test_of_two_earlier_subjects_that_are_named_the_latest_is_meant() -> None:
    assert select_subject("Do keys dive with it?", [*KEYS, *DIVES, *LOCKS]) == list(DIVES)


def test_a_word_that_the_current_subject_has_too_names_no_earlier_one() -> None:
    answer = replace(DIVES[1], text="Each diver signs with a key. [1]")
    assert select_subject("Who keeps the key?", [*KEYS, DIVES[0], answer]) == [DIVES[0], answer]


def test_a_function_word_names_no_subject() -> None:
    assert select_subject("Which of them?", [*KEYS, *DIVES]) == list(DIVES)
    polish = [replace(message, text="Gdzie?") for message in KEYS]
    assert select_subject("Kto of?", [*polish, replace(LOCKS[0], text="Kiedy?")]) == [replace(LOCKS[0], text="Kiedy?")]


def test_a_follow_up_after_a_change_is_searched_with_the_new_subject_alone() -> None:
    understanding = understand("and who pays for it?", (*KEYS, *KEYS, *KEYS, *DIVES))
    assert understanding.resolved == {"it": "The diving permit"}
    assert [variant.text for variant in understanding.variants] == [
        "and who pays for it?",
        "and who pays for it? (The diving permit)",
        "How long may a dive last?",
        "25 minutes in cold water.",
    ]


def test_nothing_of_the_former_subject_is_referred_to_if_the_new_one_was_not_answered() -> None:
    refused = replace(DIVES[1], text="The documents do not say.", titles=())
    understanding = understand("and who pays for it?", (*KEYS, DIVES[0], refused))
    assert understanding.standalone == "and who pays for it?"
    assert [variant.name for variant in understanding.variants] == ["question", "previous"]


def test_a_former_subject_that_is_named_again_is_referred_to() -> None:
    understanding = understand("and who pays for it, the new key?", (*KEYS, *DIVES))
    assert understanding.resolved == {"it": "Rotation of signing keys"}
    assert [variant.text for variant in understanding.variants][2:] == [
        "How long may a dive last?",
        "25 minutes in cold water.",
    ]


def test_the_second_question_of_a_subject_is_also_searched_with_what_it_could_refer_to() -> None:
    long = "Which minimum head must the reservoir reach before turbine four starts?"
    assert [variant.name for variant in understand(long, (*KEYS, *KEYS, *DIVES)).variants] == ["question", "carried"]
    third = replace(KEYS[0], text="And in winter?")
    assert [variant.name for variant in understand(long, (*KEYS, *DIVES, third)).variants] == ["question"]
