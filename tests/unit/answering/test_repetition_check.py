"""What the pipeline does if an answer repeats an earlier one, and if a question is ambiguous."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from clock import run_on_clock
from fakes.answering import ScriptedGenerator, ScriptedJudge, ScriptedRetriever, passage, passages_from_hits

from rag_core.answering.judging.guard import Guard
from rag_core.answering.pipeline import AnswerLimits, QueryPipeline
from rag_core.answering.repetition import RepetitionCheck
from rag_core.conversation.clarification import SpreadClarifier
from rag_core.conversation.in_memory import InMemoryConversations
from rag_core.errors import GenerationError
from rag_core.events import Event, Listener, TextDelta, Usage, fold
from rag_core.protocols import Conversations
from rag_core.retrieval.query.rules import RuleUnderstander
from rag_core.types import Answer, Clarification, Message, Prompt, Query, Reply, Style, Understanding

KEYS = "Signing keys are replaced every 45 days. The harbour master Ada Hale keeps a copy."
HITS = [passage(1, KEYS, title="Keys").hit]
FIRST, SECOND = "Signing keys are replaced every 45 days [1].", "The harbour master Ada Hale keeps a copy [1]."
CHECK = RepetitionCheck(repeated="An earlier answer said this.", nothing_new="Nothing more is known.")


def pipeline(generator: ScriptedGenerator, **parts: object) -> QueryPipeline:
    components = {"understander": RuleUnderstander(), "retriever": ScriptedRetriever(hits=HITS), **parts}
    return QueryPipeline(
        pack=passages_from_hits,
        generator=generator,
        guard=Guard(judge=ScriptedJudge(), mode="flag", stream="after", on_judge_error="allow_flagged", timeout=5.0),
        conversations=InMemoryConversations(),
        style=Style(),
        limits=AnswerLimits(),
        repetition=CHECK,
        **components,  # type: ignore[arg-type]
    )


def talk(answerer: QueryPipeline, *questions: str, events: list[Event] | None = None) -> list[Reply]:
    """The replies of one session, each of which is the fold of its events. All events are added to `events`."""
    return run_on_clock(_talk(answerer, questions, [] if events is None else events))


async def _talk(answerer: QueryPipeline, questions: Sequence[str], events: list[Event]) -> list[Reply]:
    async def record(event: Event) -> None:
        events.append(event)

    replies = []
    for question in questions:
        n_earlier = len(events)
        replies.append(await answerer.answer(Query(text=question, session_id="one"), record))
        assert fold(events[n_earlier:]) == replies[-1]
    return replies


def figures(reply: Reply) -> dict[str, float]:
    return next(dict(report.figures) for report in reply.stages if report.stage == "repetition")


def test_a_question_for_more_is_answered_without_repetitions() -> None:
    generator = ScriptedGenerator(answers=[[FIRST], [SECOND]])
    first, second = talk(pipeline(generator), "How often are keys replaced?", "What else about keys?")
    assert (first.answer.finish, second.answer.finish) == ("stop", "stop")
    assert second.answer.text == SECOND
    assert [prompt.excluded for prompt in generator.prompts] == [(), ("Signing keys are replaced every 45 days .",)]
    assert figures(second) == {"overlap": 0.0, "repeated": False}


def test_the_earlier_answer_is_given_again_if_nothing_is_new() -> None:
    generator = ScriptedGenerator(answers=[[FIRST], [], [FIRST]])
    _, second = talk(pipeline(generator), "How often are keys replaced?", "What else about keys?")
    assert second.answer.text == f"{FIRST}\n\nNothing more is known."
    assert second.answer.finish == "repeated"
    assert second.answer.citations[0].spans == ((FIRST.index("[1]"), len(FIRST) - 1),)
    assert figures(second)["repeated"] is True


def test_a_question_that_is_asked_again_is_answered_again() -> None:
    generator = ScriptedGenerator(answers=[[SECOND], [SECOND]])
    _, second = talk(pipeline(generator), "Who keeps a copy?", "Who keeps a copy?")
    assert second.answer.text == f"{SECOND}\n\nAn earlier answer said this."
    assert second.answer.finish == "repeated"
    assert figures(second) == {"overlap": 1.0, "repeated": True}


def test_a_model_that_repeats_in_other_words_is_caught_by_its_names() -> None:
    generator = ScriptedGenerator(answers=[[SECOND], ["A copy the harbour master Ada Hale keeps [1]."]])
    _, second = talk(pipeline(generator), "Who keeps a copy?", "What else about the copy?")
    assert second.answer.finish == "repeated"


REGENERATING = replace(CHECK, regenerate=True)


def test_another_question_with_the_same_answer_is_answered_again_without_it() -> None:
    generator = ScriptedGenerator(answers=[[FIRST], list(FIRST), [SECOND]])
    answerer = replace(pipeline(generator), repetition=REGENERATING)
    events: list[Event] = []
    _, second = talk(answerer, "How often are keys replaced?", "And who keeps a copy?", events=events)
    assert (second.answer.text, second.answer.finish) == (SECOND, "stop")
    assert [bool(prompt.excluded) for prompt in generator.prompts] == [False, False, True]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == f"{FIRST}{SECOND}"


@pytest.mark.parametrize("other", [[], [FIRST]])
def test_without_another_answer_the_same_one_is_given(other: list[str]) -> None:
    generator = ScriptedGenerator(answers=[[FIRST], [FIRST], other])
    answerer = replace(pipeline(generator), repetition=REGENERATING)
    _, second = talk(answerer, "How often are keys replaced?", "And who keeps a copy?")
    assert second.answer.text == f"{FIRST}\n\nAn earlier answer said this."


def test_a_model_that_fails_to_write_another_answer_is_reported_and_the_same_one_is_given() -> None:
    generator = ScriptedGenerator(answers=[[FIRST], [FIRST], []], error=GenerationError("away"), successful_calls=2)
    answerer = replace(pipeline(generator), repetition=REGENERATING)
    _, second = talk(answerer, "How often are keys replaced?", "And who keeps a copy?")
    assert (second.answer.finish, second.degraded) == ("repeated", ("generate",))


@pytest.mark.parametrize("other", [SECOND, FIRST])
def test_the_tokens_of_an_answer_that_is_written_again_are_emitted(other: str) -> None:
    texts, events = iter((FIRST, other)), list[Event]()

    async def write(prompt: Prompt, emit: Listener) -> Answer:
        text = next(texts)
        await emit(TextDelta(text))
        await emit(Usage(100, len(text)))
        return Answer(text=text)

    async def record(event: Event) -> None:
        events.append(event)

    history = (Message(role="user", text="How often?"), Message(role="assistant", text=FIRST))
    prompt = Prompt(query=Query(text="And who?"), passages=())
    run_on_clock(REGENERATING.answer(prompt.query.text, prompt, history, write, record))
    assert [event for event in events if isinstance(event, Usage)] == [Usage(100, len(FIRST)), Usage(100, len(other))]


def test_a_question_that_is_asked_again_is_not_answered_in_another_way() -> None:
    generator = ScriptedGenerator(answers=[[FIRST], [FIRST]])
    answerer = replace(pipeline(generator), repetition=REGENERATING)
    _, second = talk(answerer, "How often are keys replaced?", "how often are keys replaced")
    assert second.answer.finish == "repeated"


def test_text_is_emitted_as_soon_as_it_is_new() -> None:
    pieces = ["Signing keys are replaced ", "every 45 days", " or earlier", " if lost [1]."]
    generator = ScriptedGenerator(answers=[[FIRST], pieces])
    events: list[Event] = []
    _, second = talk(pipeline(generator), "How often are keys replaced?", "And if lost?", events=events)
    assert second.answer.finish == "stop"
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(deltas) == FIRST + second.answer.text


def test_a_short_answer_and_an_abstention_repeat_nothing() -> None:
    generator = ScriptedGenerator(answers=[["No [1]."], ["No [1]."], [], []])
    replies = talk(pipeline(generator), "Is it far?", "Is it new?", "Is it old?", "Is it odd?")
    assert [reply.answer.finish for reply in replies] == ["stop", "stop", "abstained", "abstained"]
    assert [figures(reply)["repeated"] for reply in replies[1:]] == [False, False, False]


def test_without_an_earlier_answer_nothing_is_checked() -> None:
    (reply,) = talk(pipeline(ScriptedGenerator(answers=[[FIRST]])), "What else?")
    skipped = {report.stage: report.skipped for report in reply.stages if report.skipped}
    assert skipped["repetition"] == "no earlier answer"


OFFICES = [
    replace(passage(n, f"The opening time in {city} is {n + 7}:00.", title=f"{city} office").hit, score=1 - n / 100)
    for n, city in enumerate(("Oslo", "Bergen"), 1)
]
FAR = replace(passage(9, "Soup is served at noon.", title="Canteen").hit, score=0.1)
CLARIFIER = SpreadClarifier(question="Which one?")
QUESTION = "What is the opening time?"


def test_an_ambiguous_question_is_asked_back_once_and_remembered_with_its_intent() -> None:
    conversations: Conversations = InMemoryConversations()
    generator = ScriptedGenerator(answers=[["It opens at 8:00 [1]."]])
    answerer = replace(
        pipeline(generator, retriever=ScriptedRetriever(hits=[*OFFICES, FAR])),
        clarifier=CLARIFIER,
        conversations=conversations,
    )
    first, second = talk(answerer, QUESTION, QUESTION)
    assert first.answer.text == "Which one?\n\n1. Oslo office\n2. Bergen office"
    assert first.answer.finish == "clarification"
    assert first.clarification == Clarification(question="Which one?", options=("Oslo office", "Bergen office"))
    assert (first.passages, first.answer.citations) == ((), ())
    assert [report.stage for report in first.stages if "clarification" in report.skipped] == [
        "select",
        "generate",
        "judge",
    ]
    assert (second.answer.text, second.clarification) == ("It opens at 8:00 [1].", None)
    messages = run_on_clock(conversations.history(Query(text="", session_id="one"), 10))
    assert [message.intent for message in messages] == ["search", "clarification", "search", "search"]


def test_the_history_of_a_client_continues_the_question_that_was_asked_back() -> None:
    clarification = Message(role="assistant", text="Which one?\n\n1. Oslo office\n2. Bergen office")
    history = (Message(role="user", text=QUESTION), clarification)
    generator = ScriptedGenerator(answers=[["It opens at 9:00 [1]."]])
    answerer = replace(
        pipeline(generator, retriever=ScriptedRetriever(hits=[*OFFICES, FAR])),
        clarifier=CLARIFIER,
    )
    reply = run_on_clock(answerer.answer(Query(text="2", history=history)))
    assert (reply.standalone, reply.clarification) == (f"{QUESTION} (Bergen office)", None)


@dataclass
class Fixed:
    """An Understander that understands every question alike."""

    understanding: Understanding

    async def understand(self, query: Query, history: Sequence[Message]) -> Understanding:  # noqa: ARG002
        return self.understanding


class Unsure:
    """An Understander that never knows what is meant."""

    async def understand(self, query: Query, history: Sequence[Message]) -> Understanding:  # noqa: ARG002
        back = Clarification(question="In which year?", options=("2023", "2024"))
        return Understanding(standalone=query.text, clarification=back, method="llm")


def test_a_clarification_of_the_understander_is_asked_as_it_is() -> None:
    generator = ScriptedGenerator(answers=[[FIRST], [FIRST]])
    answerer = replace(pipeline(generator, understander=Unsure()), clarifier=CLARIFIER)
    _, second, third = talk(answerer, "How often are keys replaced?", "And then?", "And now?")
    assert second.answer.text == "In which year?\n\n1. 2023\n2. 2024"
    assert second.clarification == Clarification(question="In which year?", options=("2023", "2024"))
    assert third.clarification is None


def test_a_question_back_that_is_only_a_link_is_replaced() -> None:
    linked = Clarification(question="![x](http://evil/)", options=("2023",))
    understanding = Understanding(standalone="When?", clarification=linked, method="llm")
    generator = ScriptedGenerator(answers=[[FIRST]])
    answerer = replace(pipeline(generator, understander=Fixed(understanding)), clarifier=CLARIFIER)
    _, second = talk(answerer, "How often are keys replaced?", "When?")
    assert second.answer.text == "Which one?\n\n1. 2023"


def test_options_are_filtered_like_an_answer() -> None:
    hits = [replace(hit, origin=replace(hit.origin, title=f"{hit.origin.title} ![x](http://evil/)")) for hit in OFFICES]
    answerer = pipeline(ScriptedGenerator(answers=[]), retriever=ScriptedRetriever(hits=[*hits, FAR]))
    (reply,) = talk(replace(answerer, clarifier=CLARIFIER), QUESTION)
    assert reply.clarification is not None
    assert len(reply.clarification.options) == 2
    assert "evil" not in reply.answer.text
