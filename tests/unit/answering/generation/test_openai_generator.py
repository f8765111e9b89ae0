"""Answers of a language model behind an endpoint, and what becomes of them when it fails."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
from clock import run_on_clock
from fakes.answering import ScriptedGenerator, passage
from fakes.openai_endpoint import (
    CUT,
    HANG,
    Endpoint,
    ScriptedHttpResponse,
    connect,
    end,
    error_response,
    piece,
    run_endpoint,
    stream_response,
)

from rag_core.answering.generation.fallback import Fallback
from rag_core.answering.generation.openai import OpenAIGenerator
from rag_core.errors import GenerationError, ModelError, UsageError
from rag_core.protocols import Generator
from rag_core.stage import recording, stage
from rag_core.types import Prompt, Query, StageReport, Style

PROMPT = Prompt(
    query=Query(text="When does water boil?"),
    passages=(passage(1, "Water boils at 100 °C.", title="Physics"),),
    style=Style(pack="qa"),
)
LONG = 60.0


@dataclass
class ConnectedGenerator:
    """An OpenAIGenerator that connects for each answer."""

    endpoint: Endpoint
    settings: Mapping[str, Any] = field(default_factory=dict)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        async with (
            connect(self.endpoint, **self.settings) as client,
            aclosing(OpenAIGenerator(client, temperature=0.1, max_tokens=64).stream(prompt)) as pieces,
        ):
            async for piece in pieces:
                yield piece


@dataclass
class StreamedAnswer:
    pieces: list[str] = field(default_factory=list)
    error: str = ""
    stages: Sequence[StageReport] = ()

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def read_answer(answering: Generator) -> StreamedAnswer:
    async def listen() -> StreamedAnswer:
        answer = StreamedAnswer()
        with recording() as stages:
            answer.stages = stages
            try:
                async with stage("generate"), aclosing(answering.stream(PROMPT)) as pieces:
                    async for piece in pieces:
                        answer.pieces.append(piece)
            except GenerationError as error:
                answer.error = str(error)
        return answer

    return asyncio.run(listen())


def answer_from_endpoint(*plays: ScriptedHttpResponse, **settings: Any) -> StreamedAnswer:
    with run_endpoint(*plays) as endpoint:
        return read_answer(ConnectedGenerator(endpoint, settings))


def test_it_streams_what_the_model_writes_of_the_rendered_prompt() -> None:
    with run_endpoint(stream_response("At ", "100 °C", " [1].")) as endpoint:
        assert read_answer(ConnectedGenerator(endpoint)).pieces == ["At ", "100 °C", " [1]."]
    (messages,) = endpoint.prompts
    assert [message["role"] for message in messages] == ["system", "user"]
    assert "Water boils at 100 °C." in messages[-1]["content"]
    assert (endpoint.requests[0].body["temperature"], endpoint.requests[0].body["max_tokens"]) == (0.1, 64)


def test_the_stage_around_has_the_tokens_and_the_time_of_the_first_one() -> None:
    (report,) = answer_from_endpoint(stream_response("At 100 °C [1].")).stages
    counted = {name: value for name, value in report.figures.items() if name != "first_token"}
    assert counted == {"prompt_tokens": 40, "completion_tokens": 4, "cached_tokens": 32}
    assert 0 < report.figures["first_token"] <= report.seconds


def test_a_model_that_does_not_find_the_answer_says_nothing() -> None:
    for pieces in (["NOT IN ", "THE PASSAGES"], ["NOT IN THE PASSAGES."], ['"NOT IN THE PASSAGES"\n']):
        answer = answer_from_endpoint(stream_response(*pieces))
        assert (answer.text.strip(), answer.error) == ("", "")


@pytest.mark.parametrize(
    "pieces",
    [
        ["NOT IN THE PASSAGES. ", "The passages speak of pumps only."],
        ["NOT IN THE PASSAGES", ".", " The", " passages", " speak of pumps."],
        ["**Not in the passages.**\n\nThey speak of pumps."],
        ["Not in the passages: they speak of pumps."],
        ["NOT IN THE PASSAGES\n", "They speak of pumps."],
        ["Not in the passages."],
    ],
)
def test_what_follows_that_or_is_in_other_letters_is_not_emitted_either(pieces: Sequence[str]) -> None:
    answer = answer_from_endpoint(stream_response(*pieces))
    assert (answer.text, answer.error) == ("", "")


def test_a_sentence_that_goes_on_is_emitted() -> None:
    for text in (
        "Not in the passages but in my memory.",
        "The answer is NOT IN THE PASSAGES.",
        "NOT IN THE PASSAGESX",
    ):
        assert answer_from_endpoint(stream_response(*text)).text == text


def test_a_text_that_only_begins_like_that_is_emitted() -> None:
    assert answer_from_endpoint(stream_response("N", "OT IN ", "doubt [1].")).pieces == ["NOT IN doubt [1]."]
    assert answer_from_endpoint(stream_response("NOT")).text == "NOT"


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([CUT], "broke off"),
        ([HANG], "no further piece"),
        (end("length"), "the answer reached its limit of 64 tokens"),
        (end("content_filter"), "the endpoint's content filter ended the answer"),
    ],
)
def test_an_answer_that_is_cut_is_emitted_as_far_as_it_came(steps: Sequence[Any], reason: str) -> None:
    answer = answer_from_endpoint(
        ScriptedHttpResponse(steps=[piece("At "), *steps]), stall_timeout=2.0 if HANG in steps else LONG
    )
    assert answer.text == "At "
    assert reason in answer.error
    assert reason in answer.stages[0].error


def test_a_reader_who_leaves_ends_the_work_at_the_endpoint() -> None:
    with run_endpoint(ScriptedHttpResponse(steps=[piece("At "), HANG])) as endpoint:

        async def leave_after_one_piece() -> bool:
            async with aclosing(ConnectedGenerator(endpoint).stream(PROMPT)) as pieces:
                assert await anext(pieces) == "At "
            return await asyncio.to_thread(endpoint.client_left.wait, LONG)

        assert asyncio.run(leave_after_one_piece())


def test_if_the_first_generator_writes_no_word_the_second_answers_and_the_report_records_it() -> None:
    quoting = ScriptedGenerator(answers=[["Water boils at 100 °C. [1]"]])
    with run_endpoint(error_response(503, {"error": {"message": "loading"}})) as endpoint:
        answer = read_answer(Fallback(ConnectedGenerator(endpoint), quoting))
    assert (answer.text, answer.error) == ("Water boils at 100 °C. [1]", "")
    model, around = answer.stages
    assert (model.stage, model.parent, around.error) == ("model", "generate", "")
    assert model.error.endswith("refused with 503: loading")
    assert quoting.prompts == [PROMPT]


@pytest.mark.parametrize("pieces", [[], [""], [" ", "\n"], ['""'], ["..."]])
def test_an_empty_answer_is_a_failure_and_the_second_generator_answers(pieces: Sequence[str]) -> None:
    assert answer_from_endpoint(stream_response(*pieces)).error == "the language model sent an empty answer"
    with run_endpoint(stream_response(*pieces)) as endpoint:
        answer = read_answer(Fallback(ConnectedGenerator(endpoint), ScriptedGenerator(answers=[["Quoted. [1]"]])))
    assert (answer.text, answer.error) == ("Quoted. [1]", "")
    assert [report.error for report in answer.stages if report.stage == "model"] == [
        "the language model sent an empty answer"
    ]


def test_a_refused_key_is_reported_with_the_setting_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = error_response(401, {"error": {"message": "bad key"}})
    assert answer_from_endpoint(refusal).error.endswith(
        "refused with 401: bad key (no key was sent: set api_key to a reference such as env:MODEL_API_KEY)"
    )
    monkeypatch.setenv("MODEL_KEY", "sk-canary-123456")
    with run_endpoint(refusal) as endpoint:
        error = read_answer(ConnectedGenerator(endpoint, {"api_key_env": "MODEL_KEY"})).error
    assert error.endswith("refused with 401: bad key (check the key in MODEL_KEY)")


def test_the_second_generator_is_not_asked_if_the_first_one_answers_or_says_that_nothing_does() -> None:
    for play, text in (
        (stream_response("At ", "100 °C [1]."), "At 100 °C [1]."),
        (stream_response("NOT IN THE PASSAGES"), ""),
    ):
        quoting = ScriptedGenerator(answers=[])
        with run_endpoint(play) as endpoint:
            answer = read_answer(Fallback(ConnectedGenerator(endpoint), quoting))
        assert (answer.text, [report.error for report in answer.stages]) == (text, ["", ""])
        assert quoting.prompts == []


def test_a_model_that_hangs_leaves_time_for_the_second_generator() -> None:
    class Hanging:
        async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:  # noqa: ARG002
            await asyncio.sleep(LONG)
            yield "never"

    async def listen() -> tuple[str, list[StageReport]]:
        with recording(timeout=8.0) as stages:
            quoting = ScriptedGenerator(answers=[["Quoted. [1]"]], seconds=1.0)
            async with stage("generate"), aclosing(Fallback(Hanging(), quoting).stream(PROMPT)) as pieces:
                return "".join([piece async for piece in pieces]), stages

    text, stages = run_on_clock(listen())
    assert text == "Quoted. [1]"
    assert [(report.stage, report.error) for report in stages] == [
        ("model", "timeout after 6.000 s"),
        ("generate", ""),
    ]


def test_an_answer_that_breaks_off_is_not_continued_by_another() -> None:
    quoting = ScriptedGenerator(answers=[])
    with run_endpoint(ScriptedHttpResponse(steps=[piece("At "), CUT])) as endpoint:
        answer = read_answer(Fallback(ConnectedGenerator(endpoint), quoting))
    assert answer.text == "At "
    assert "broke off" in answer.error
    assert quoting.prompts == []


@pytest.mark.parametrize("wrong", [UsageError("a setting"), RuntimeError("a bug")])
def test_the_second_generator_hides_no_mistake_of_ours(wrong: Exception) -> None:
    with pytest.raises(type(wrong)):
        read_answer(Fallback(ScriptedGenerator(answers=[[]], error=wrong), ScriptedGenerator(answers=[])))


def test_any_generator_that_fails_is_replaced() -> None:
    broken = ScriptedGenerator(answers=[[]], error=ModelError("no weights"))
    assert read_answer(Fallback(broken, ScriptedGenerator(answers=[["Quoted."]]))).text == "Quoted."


def test_leaving_closes_the_generator_that_answers() -> None:
    async def leave_after_one_piece(first: ScriptedGenerator) -> None:
        pieces: AsyncGenerator[str, None] = Fallback(first, ScriptedGenerator(answers=[])).stream(PROMPT)
        async with aclosing(pieces):
            await anext(pieces)

    writing = ScriptedGenerator(answers=[["At ", "100 °C"]])
    asyncio.run(leave_after_one_piece(writing))
    assert writing.closed == 1
