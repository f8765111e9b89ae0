"""The measures of scripted conversations."""

from dataclasses import replace

import pytest

from jobs.script_runner import run_scripts
from rag_core.evaluation.script_figures import figures_to_json, measure_scripts
from rag_core.evaluation.scripted_conversations import Expectation, ScriptedConversation, ScriptedTurn
from rag_core.evaluation.scripted_replies import MeasuredTurn, ScriptedReply, is_met, is_repetition, name_failure
from rag_core.types import Finish

KEYS = ScriptedTurn(question="How often are keys replaced?", documents=("keys.md",), facts=("every 90 days",))
RIGHT = ScriptedReply(answer="Keys are replaced every 90 days.[1]", documents=("keys.md",), searched=(KEYS.question,))
WHO = ScriptedTurn(question="And by whom?", documents=("keys.md",), facts=("two holders",), is_follow_up=True)


def build_turn(
    turn: ScriptedTurn, reply: ScriptedReply, position: int = 1, conversation: str = "a", alone: bool = True
) -> MeasuredTurn:
    return MeasuredTurn(
        conversation=conversation, position=position, turn=turn, reply=reply, alone=reply if alone else None
    )


def expecting(expect: Expectation, reply: ScriptedReply, position: int = 2) -> MeasuredTurn:
    return build_turn(ScriptedTurn(question="More?", expect=expect), reply, position)


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (RIGHT, ""),
        (replace(RIGHT, answer="Keys are sometimes replaced."), "fact missing"),
        (replace(RIGHT, documents=("locks.md",)), "wrong document"),
        (replace(RIGHT, finish="abstained"), "abstained"),
        (replace(RIGHT, finish="clarification"), "clarification"),
        (replace(RIGHT, finish="repeated"), ""),
        (replace(RIGHT, error="StoreError: closed"), "error"),
    ],
)
def test_a_failure_is_named_by_its_first_reason(reply: ScriptedReply, failure: str) -> None:
    assert name_failure(build_turn(KEYS, reply)) == failure


@pytest.mark.parametrize("finish", ["abstained", "clarification", "conversational", "repeated"])
def test_an_outcome_other_than_an_answer_must_be_the_one_expected(finish: Finish) -> None:
    outcomes: list[Expectation] = ["answer", "abstained", "clarification", "conversational", "repeated"]
    reply = ScriptedReply(answer="Hello.", finish=finish)
    assert [expect for expect in outcomes if is_met(expecting(expect, reply), [])] == [finish]


def test_a_repetition_is_caught_by_saying_so_or_by_other_sentences() -> None:
    first = build_turn(KEYS, RIGHT)
    partly = replace(RIGHT, answer="Keys are replaced every 90 days.[2] They are kept in a box.[1]")
    other = replace(RIGHT, answer="They are kept in a box.[1]")
    assert not is_met(expecting("repeated", RIGHT), [first])
    assert not is_met(expecting("repeated", partly), [first])
    assert is_met(expecting("repeated", other), [first])
    assert is_repetition(build_turn(WHO, RIGHT, 2), [first])
    assert not is_repetition(build_turn(WHO, partly, 2), [first])
    noted = replace(RIGHT, answer=f"{RIGHT.answer}\n\nAn earlier answer said this, too.", finish="repeated")
    assert is_repetition(build_turn(WHO, noted, 2), [first])


def test_quoted_passages_count_without_their_quotation_marks_and_introduction() -> None:
    quoted = "No sentence answers this for certain. The closest passages:\n\n“{}” [1]"
    reply = replace(RIGHT, answer=quoted.format("Every 90 days keys are replaced."), finish="passages")
    assert name_failure(build_turn(KEYS, reply)) == ""
    other = replace(reply, answer=quoted.format("They are kept in a box."))
    assert is_met(expecting("repeated", other), [build_turn(KEYS, reply)])


def test_shares_compare_follow_ups_with_the_same_questions_alone() -> None:
    who = replace(RIGHT, answer="By two holders.[1]", searched=(WHO.question, KEYS.question))
    alone = replace(RIGHT, documents=("locks.md",))
    follow_ups = [replace(build_turn(WHO, who, 2, id), alone=reply) for id, reply in (("a", alone), ("b", who))]
    figures = measure_scripts([build_turn(KEYS, RIGHT), build_turn(KEYS, RIGHT, conversation="b"), *follow_ups])
    shares = figures.groups["follow-ups"]
    assert (shares.turns, shares.measures["facts"].mean, shares.alone["facts"].mean) == (2, 1.0, 0.5)
    assert shares.ratio == 2.0
    assert (shares.comparison.better, shares.comparison.equal) == (1, 1)
    assert figures.positions[1].ratio == 1.0
    assert figures.met == {"answer": (4, 4)}
    assert figures_to_json(figures)["groups"]["first turns"]["right_document"]["mean"] == 1.0


def test_words_that_only_another_session_has_are_foreign() -> None:
    conversations = [
        ScriptedConversation(id="a", turns=(KEYS, WHO)),
        ScriptedConversation(id="b", turns=(ScriptedTurn(question="Hello!", expect="conversational"), WHO)),
    ]

    def ask(question: str, session_id: str) -> ScriptedReply:
        questions = sessions.setdefault(session_id[-1:] if separate else "", [])
        questions.append(question)
        return replace(RIGHT, searched=tuple(questions[-2:]))

    separate, sessions = True, dict[str, list[str]]()
    assert measure_scripts(list(run_scripts(ask, conversations, 1))).foreign == {}
    separate, sessions = False, dict[str, list[str]]()
    assert ("b", 1) in measure_scripts(list(run_scripts(ask, conversations, 1))).foreign


def test_each_session_is_forgotten_at_the_end_even_after_a_failure() -> None:
    session_ids, forgotten = list[str](), list[str]()

    def ask(question: str, session_id: str) -> ScriptedReply:
        session_ids.append(session_id)
        if session_id.endswith("b"):
            raise RuntimeError
        return RIGHT

    conversations = [ScriptedConversation(id=id, turns=(KEYS,)) for id in ("a", "b")]
    with pytest.raises(RuntimeError):
        list(run_scripts(ask, conversations, 1, forgotten.append))
    assert forgotten == session_ids


def test_all_sessions_are_open_together_and_later_answers_are_also_asked_for_without_history() -> None:
    calls = list[tuple[str, str]]()

    def ask(question: str, session_id: str) -> ScriptedReply:
        calls.append((question, session_id[-1:]))
        return RIGHT

    thanks = ScriptedTurn(question="Thanks.", expect="conversational")
    conversations = [
        ScriptedConversation(id=id, turns=(KEYS, *later_turns)) for id, later_turns in (("a", (WHO,)), ("b", (thanks,)))
    ]
    turns = list(run_scripts(ask, conversations, 1))
    assert calls == [
        (KEYS.question, "a"),
        (KEYS.question, "b"),
        (WHO.question, "a"),
        (WHO.question, ""),
        ("Thanks.", "b"),
    ]
    assert [turn.alone is None for turn in turns] == [False, False, False, True]
