import pytest

from rag_core.conversation.repetition import (
    asks_for_more,
    can_repeat,
    has_only_words,
    list_earlier_sentences,
    measure_overlap,
    normalize_sentence,
    repeats_sentences,
    split_sentences,
)
from rag_core.types import Message

HISTORY = [
    Message(role="user", text="Who is Ada Lovelace?"),
    Message(role="assistant", text="Ada Lovelace knew Charles Babbage. [1] She lived in London. [2]"),
]


@pytest.mark.parametrize(
    "question",
    [
        "What else does it say?",
        "Who else was there?",
        "Any other exceptions?",
        "Are there others?",
        "Name another one.",
        "Tell me more about the keys.",
        "Is there anything more?",
        "Give further examples.",
        "What did she do besides that?",
        "Was gibt es noch?",
        "Gibt es weitere Regeln?",
        "Y a-t-il d'autres règles ?",
        "¿Hay algo más?",
        "还有什么?",
    ],
)
def test_a_question_asks_for_more(question: str) -> None:
    assert asks_for_more(question)


@pytest.mark.parametrize(
    "question",
    [
        "How often are keys rotated?",
        "Which lock has more than two gates?",
        "Who lives on the other side of the harbour?",
        "What is another name for the lock?",
        "How do I bind an additional service?",
        "Is it more expensive on Sundays?",
        "Was kostet eine Führung?",
        "Combien coûte la visite ?",
    ],
)
def test_an_ordinary_question_does_not_ask_for_more(question: str) -> None:
    assert not asks_for_more(question)


def test_the_overlap_is_the_share_of_entities_that_the_last_turns_mention() -> None:
    assert measure_overlap("Ada Lovelace met Charles Babbage in Paris.", HISTORY) == pytest.approx(2 / 3)
    assert measure_overlap("Later, Ada Lovelace met Charles Babbage. [3]", HISTORY) == 1.0


def test_nothing_overlaps_without_history_or_entities_or_after_three_turns() -> None:
    assert measure_overlap("Ada Lovelace lived in London.", []) == 0.0
    assert measure_overlap("She died young.", HISTORY) == 0.0
    other = [Message(role="user", text="and the lock?"), Message(role="assistant", text="It opens at noon.")]
    assert measure_overlap("Ada Lovelace lived.", [*HISTORY, *other * 2]) == 1.0
    assert measure_overlap("Ada Lovelace lived.", [*HISTORY, *other * 3]) == 0.0


def test_the_entities_of_a_message_are_used_as_they_are() -> None:
    named = [Message(role="assistant", text="She did.", entities=("Ada Lovelace",))]
    assert measure_overlap("We know Ada Lovelace.", named) == 1.0


def test_the_sentences_of_the_last_answers_are_listed() -> None:
    earlier = list_earlier_sentences([*HISTORY, *HISTORY])
    assert earlier == ("Ada Lovelace knew Charles Babbage.", "She lived in London.")
    assert repeats_sentences("“She lived in London.” [7]", earlier)
    assert not repeats_sentences("She lived in London. [1] She died in London. [2]", earlier)
    assert not repeats_sentences("She lived in London.", ())
    assert list_earlier_sentences(HISTORY * 4, turns=1) == earlier
    clarification = Message(role="assistant", text="Which one do you mean?", intent="clarification")
    assert list_earlier_sentences([clarification]) == ()


@pytest.mark.parametrize(
    ("beginning", "expected"),
    [
        *[("", True), ("She li", True), ("She lived in London. [1] Ada", True), ("She lived in London. [1]", True)],
        *[("She died", False), ("She left. She lived", False), ("No", False)],
    ],
)
def test_a_beginning_can_become_what_was_said(beginning: str, expected: bool) -> None:
    earlier = frozenset(map(normalize_sentence, list_earlier_sentences(HISTORY)))
    assert can_repeat(beginning, earlier) is expected


def test_words_in_another_order_are_still_the_same_words() -> None:
    earlier = list_earlier_sentences(HISTORY)
    assert has_only_words("In London lived Ada Lovelace. [1]", earlier)
    assert not has_only_words("In London lived Mary. [1]", earlier)


def test_sentences_have_no_markers_and_no_line_breaks() -> None:
    assert split_sentences("One [1].\nTwo\nthree [2][3]. [^4]\n\n- ") == ["One .", "Two three ."]
