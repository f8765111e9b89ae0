"""The rule that recognizes follow-up questions, what they refer to, and what is searched for them."""

import asyncio
from dataclasses import replace

import pytest

from rag_core.retrieval.query.continuation import continue_question
from rag_core.retrieval.query.coreference import find_referents, rank_names, rank_titles, weigh_words
from rag_core.retrieval.query.follow_up import FollowUp, guess_language, recognize_follow_up
from rag_core.retrieval.query.rules import MAX_READ_CHARS, RuleUnderstander
from rag_core.types import Message, Query, Understanding

KEYS = [
    Message(role="user", text="How often are the signing keys replaced?", standalone="How often ...?"),
    Message(role="assistant", text="They are rotated every 90 days. [1]", titles=("Rotation of signing keys",)),
]
LATER = [*KEYS, Message(role="user", text="Why?"), Message(role="assistant", text="So that a stolen key is worthless.")]
LONG = "Which minimum head must the reservoir reach before turbine four starts?"


def understand(question: str, history: list[Message]) -> Understanding:
    return asyncio.run(RuleUnderstander().understand(Query(text=question), history))


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("And which minimum head must the reservoir reach before the turbine starts?", "is_indicated"),
        ("What about the minimum head that the reservoir reaches when turbines start?", "is_indicated"),
        ("When do the watch leaders of the station sign the permit for it?", "references"),
        ("When do the watch leaders of the station tell her about divers?", "is_personal"),
        ("Was anyone hurt?", "is_short"),
        ("Wer von den Wachleitern im Kraftwerk unterschreibt dafür den Erlaubnisschein?", "references"),
        ("Quel chef de quart de la centrale signe son permis de plongée avant midi ?", "is_personal"),
        ("¿Qué jefe de turno de la central firma también el permiso antes de la inmersión?", "is_indicated"),
    ],
)
def test_a_follow_up_is_recognized_by_its_words(question: str, reason: str) -> None:
    assert getattr(recognize_follow_up(question, KEYS), reason)


def test_a_question_that_stands_alone_is_not_a_follow_up() -> None:
    assert not recognize_follow_up(LONG, KEYS)


def test_pronouns_are_those_of_the_language_that_is_spoken() -> None:
    assert guess_language(["¿Qué es la presa?"]) == "es"
    assert recognize_follow_up("¿Qué es la presa de marea del puerto viejo?", []).references == ()


def test_the_title_that_shares_words_with_the_questions_is_preferred() -> None:
    answer = Message(role="assistant", text="...", titles=("Control system", "Storms", "Rotation of signing keys"))
    assert rank_titles([KEYS[0], answer])[0] == "Rotation of signing keys"


def test_an_answer_without_citations_leaves_the_title_of_the_one_before() -> None:
    assert rank_titles(LATER) == ["Rotation of signing keys"]


def test_the_title_that_the_last_answer_cites_first_outweighs_all_earlier_citations_of_another() -> None:
    lock = Message(role="assistant", text="...", titles=("Lock times",))
    asked = Message(role="user", text="So?")
    assert rank_titles([KEYS[1], asked, KEYS[1], asked, lock]) == ["Lock times", "Rotation of signing keys"]
    assert rank_titles([asked, lock, asked, KEYS[1]]) == ["Rotation of signing keys", "Lock times"]


def test_a_word_counts_by_the_last_question_that_has_it() -> None:
    assert weigh_words(["dive dive", "lock", "dive gate", "gate"], "en") == {"dive": 0.5, "lock": 0.25, "gate": 1.0}


def test_a_title_counts_more_for_a_word_of_the_last_question_than_of_an_earlier_one() -> None:
    answer = Message(role="assistant", text="...", titles=("Log", "Signing keys", "Lock times"))
    questions = [Message(role="user", text=text) for text in ("When do keys change?", "And the lock?")]
    assert rank_titles([questions[0], questions[1], answer]) == ["Log", "Lock times", "Signing keys"]
    assert rank_titles([questions[1], questions[0], answer]) == ["Log", "Signing keys", "Lock times"]


def test_the_latest_names_count_more() -> None:
    history = [Message(role="user", text=f"what of {name}?") for name in ("Ada Hale", "Bob Reed")]
    assert rank_names(history) == ["Bob Reed", "Ada Hale"]


def test_a_short_name_counts_as_the_longer_one_that_contains_it() -> None:
    history = [
        Message(role="user", text="who was Ada Lovelace?"),
        Message(
            role="assistant", text="a friend of Babbage. Lovelace wrote programs, as did Lovelace's pupils in Rome."
        ),
    ]
    assert rank_names(history)[0] == "Ada Lovelace"


def test_names_of_an_abstention_are_not_carried_over() -> None:
    history = [*KEYS, Message(role="user", text="why so"), Message(role="assistant", text="closest: Tidal Tables")]
    assert "Tidal Tables" not in rank_names(history)


def test_a_question_that_names_the_title_carries_nothing() -> None:
    assert find_referents("Who wrote the rotation of signing keys?", KEYS, FollowUp(is_short=True)) == ()


def test_a_pronoun_of_a_person_also_carries_the_full_name() -> None:
    master = Message(role="assistant", text="the harbour master is Pell Anstrow. [1]", titles=("Staff directory",))
    referents = find_referents("What is her extension?", [KEYS[0], master], FollowUp(is_personal=True))
    assert referents == ("Pell Anstrow", "Staff directory")


def test_a_title_that_names_the_person_is_enough() -> None:
    master = Message(role="assistant", text="it is Pell Anstrow, born in Ansa Head. [1]", titles=("Pell Anstrow",))
    assert find_referents("Is she well?", [KEYS[0], master], FollowUp(is_personal=True)) == ("Pell Anstrow",)


def test_thanks_and_greetings_are_not_searched() -> None:
    greeting = [
        Message(role="user", text="Good Morning", intent="conversational"),
        Message(role="assistant", text="Good Morning", intent="conversational"),
    ]
    assert understand("And who may do that?", greeting).method == "none"
    assert [variant.text for variant in understand("Why is that?", [*greeting, *KEYS]).variants][2:] == [
        KEYS[0].text,
        "They are rotated every 90 days.",
    ]


def test_a_follow_up_is_searched_with_what_it_refers_to_and_with_earlier_messages() -> None:
    understanding = understand("And who may do that?", KEYS)
    assert understanding.standalone == "And who may do that? (Rotation of signing keys)"
    assert understanding.resolved == {"that": "Rotation of signing keys"}
    assert [(variant.name, variant.text, variant.weight) for variant in understanding.variants] == [
        ("question", "And who may do that?", 1.0),
        ("carried", "And who may do that? (Rotation of signing keys)", 1.0),
        ("previous", "How often are the signing keys replaced?", 0.5),
        ("answer", "They are rotated every 90 days.", 0.5),
    ]


@pytest.mark.parametrize("marker", ["[1]", "[^12]"])
def test_an_earlier_answer_is_searched_without_its_markers(marker: str) -> None:
    history = [KEYS[0], replace(KEYS[1], text=f"They are rotated {marker} every 90 days.{marker}")]
    assert understand("And who may do that?", history).variants[3].text == "They are rotated every 90 days."


def test_a_question_that_stands_alone_is_searched_alone() -> None:
    understanding = understand(LONG, LATER)
    assert (understanding.standalone, understanding.resolved) == (LONG, {})
    assert [variant.text for variant in understanding.variants] == [LONG]


def test_the_second_question_is_also_searched_with_what_it_could_refer_to() -> None:
    understanding = understand(LONG, KEYS)
    assert understanding.standalone == LONG
    assert [variant.name for variant in understanding.variants] == ["question", "carried"]


def test_a_language_without_lists_is_searched_with_all_variants() -> None:
    history = [Message(role="user", text="Gdzie leży Skerra?"), KEYS[1]]
    understanding = understand("Jak często wymienia się klucze podpisujące w sterowni elektrowni pływowej", history)
    assert [variant.name for variant in understanding.variants] == ["question", "carried", "previous", "answer"]


def test_the_answer_to_a_clarification_continues_the_question_that_it_clarifies() -> None:
    clarification = [
        Message(role="user", text="When was it?"),
        Message(role="assistant", text="?", intent="clarification"),
    ]
    assert continue_question("the storm", [*KEYS, *clarification]) == "When was it? (the storm)"
    listed = replace(clarification[1], text="Which one?\n\n1. the flood\n2. the storm")
    assert continue_question("2", [*KEYS, clarification[0], listed]) == "When was it? (the storm)"
    assert continue_question("2", [listed]) == "the storm"
    understanding = understand(LONG, [*KEYS, *clarification])
    assert understanding.standalone == f"When was it? ({LONG})"
    assert [variant.name for variant in understanding.variants] == [
        "question",
        "carried",
        "previous",
        "answer",
        "first",
    ]


def test_only_the_beginning_of_an_earlier_message_is_read() -> None:
    history = [KEYS[0], replace(KEYS[1], text="They are kept. " + "x " * MAX_READ_CHARS + "Ada Hale", titles=())]
    assert understand("And where is she?", history).standalone == "And where is she?"
