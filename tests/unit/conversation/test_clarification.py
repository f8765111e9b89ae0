from collections.abc import Sequence
from dataclasses import replace

import pytest
from fakes.answering import passage

from rag_core.conversation.clarification import (
    SpreadClarifier,
    format_clarification,
    mark_clarification,
    was_asked_back,
)
from rag_core.retrieval.query.continuation import choose_option
from rag_core.types import Clarification, Hit, Message, Query

WHICH = "Which one do you mean?"
CLARIFIER = SpreadClarifier(question=WHICH, options=3)
CITIES = ("Oslo", "Bergen", "Turku", "Graz", "Lyon")
QUESTION = "What is the opening time?"


def hit(n: int, title: str, text: str, score: float) -> Hit:
    return replace(passage(n, text, title=title, language="en").hit, score=score)


OFFICES = [
    hit(n, f"{city} office", f"{city} is old. The opening time of the office in {city} is {n + 7}:00.", 1 - n / 50)
    for n, city in enumerate(CITIES, 1)
]
REST = hit(9, "Canteen", "Soup is served at noon.", 0.1)
HITS = [*OFFICES, REST]


def titles(question: str, history: Sequence[Message] = (), hits: Sequence[Hit] = HITS) -> tuple[str, ...]:
    clarification = CLARIFIER.clarify(Query(text=question), history, hits)
    return clarification.options if clarification else ()


def test_a_question_that_fits_five_offices_is_asked_back_with_the_best_three() -> None:
    assert CLARIFIER.clarify(Query(text=QUESTION), (), HITS) == Clarification(
        question=WHICH, options=("Oslo office", "Bergen office", "Turku office")
    )


@pytest.mark.parametrize(
    "question",
    [
        "What is the opening time in Bergen?",
        "What are the opening times of all offices?",
        "Which office has the earliest opening time?",
        "Who founded the observatory?",
    ],
)
def test_a_question_that_names_one_or_means_several_is_not_asked_back(question: str) -> None:
    assert titles(question) == ()


def test_the_subject_of_the_conversation_is_not_asked_for() -> None:
    assert titles(QUESTION, [Message(role="user", text="I am going to Bergen.")]) == ()
    answer = Message(role="assistant", text="It is by the sea. [1]", titles=("Bergen office",))
    assert titles(QUESTION, [Message(role="user", text="Where is it?"), answer]) == ()
    assert titles(QUESTION, [Message(role="user", text="Hello.")]) != ()


def test_documents_are_not_equal_if_one_is_better_or_has_another_text() -> None:
    clearly_best = [replace(OFFICES[0], score=3.0), *HITS[1:]]
    assert titles(QUESTION, hits=clearly_best) == ()
    other_title = [OFFICES[0], replace(OFFICES[1], origin=replace(OFFICES[1].origin, title="Harbour rules")), REST]
    assert titles(QUESTION, hits=other_title) == ()
    other_text = [
        OFFICES[0],
        hit(7, "Bergen office", "Opening the safe takes time and two clerks of Bergen.", 0.99),
        REST,
    ]
    assert titles(QUESTION, hits=other_text) == ()
    assert titles(QUESTION, hits=[]) == titles(QUESTION, hits=[OFFICES[0]]) == ()


def test_a_document_is_read_in_all_its_hits() -> None:
    (oslo, bergen), others = OFFICES[:2], [hit(5, "Bergen office", "Bergen has a fish market.", 0.99)]
    others = [replace(hit, chunk=replace(hit.chunk, document_id=bergen.chunk.document_id)) for hit in others]
    assert titles(QUESTION, hits=[oslo, *others, bergen, REST]) == ("Oslo office", "Bergen office")
    assert titles(QUESTION, hits=[oslo, *others, REST]) == ()


def test_equal_titles_are_not_a_choice() -> None:
    same = [replace(hit, origin=replace(hit.origin, title="Our office")) for hit in OFFICES]
    assert titles(QUESTION, hits=same) == ()


def test_file_names_that_differ_in_numbers_are_not_a_choice() -> None:
    def rename(hit: Hit, title: str, uri: str) -> Hit:
        return replace(hit, origin=replace(hit.origin, title=title, uri=uri))

    names = [f"page-{n}" for n in range(2)]
    files = [
        rename(hit, name.replace("-", " "), f"file:///{name}.txt") for hit, name in zip(OFFICES, names, strict=False)
    ]
    assert titles(QUESTION, hits=[*files, REST]) == ()
    offices = [rename(hit, f"Office {n}", f"file:///{n}.txt") for n, hit in enumerate(OFFICES)]
    assert titles(QUESTION, hits=[*offices, REST]) == ("Office 0", "Office 1", "Office 2")
    minutes = [
        rename(hit, f"town council 2024 {n}", f"file:///town-council-2024-{n}.txt") for n, hit in enumerate(OFFICES)
    ]
    assert len(titles(QUESTION, hits=[*minutes, REST])) == 3


def test_the_last_answer_asked_back_by_its_intent_or_by_its_text() -> None:
    clarification = Message(role="assistant", text=f"{WHICH}\n\n1. Oslo office", intent="clarification")
    question = Message(role="user", text=QUESTION)
    assert was_asked_back([question, clarification])
    assert was_asked_back([question, replace(clarification, intent="")], WHICH)
    assert not was_asked_back(
        [question, clarification, question, Message(role="assistant", text="At 8:00. [1]")], WHICH
    )
    assert not was_asked_back([], WHICH)


def test_an_answer_that_asks_back_is_marked_in_the_history_of_a_client() -> None:
    question, clarification = (
        Message(role="user", text=QUESTION),
        Message(role="assistant", text=f"{WHICH}\n\n1. Oslo office"),
    )
    assert [message.intent for message in mark_clarification([question, clarification], WHICH)] == ["", "clarification"]
    assert mark_clarification([question, clarification, question], WHICH) == (question, clarification, question)
    assert mark_clarification([], WHICH) == ()


def test_an_option_is_chosen_by_its_number() -> None:
    message = format_clarification(Clarification(question=WHICH, options=("Oslo office", "Bergen office")))
    assert message == "Which one do you mean?\n\n1. Oslo office\n2. Bergen office"
    assert [choose_option(text, message) for text in ("2", " 1. ", "3", "Bergen")] == [
        "Bergen office",
        "Oslo office",
        "3",
        "Bergen",
    ]
    assert format_clarification(Clarification(question="In which year?")) == "In which year?"
