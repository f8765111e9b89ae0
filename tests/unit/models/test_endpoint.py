"""The client of OpenAI-compatible endpoints, over real sockets: everything ends in an answer or a named error."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from time import monotonic
from typing import Any, TypeVar

import pytest
from fakes.openai_endpoint import (
    CUT,
    HANG,
    Endpoint,
    ScriptedHttpResponse,
    connect,
    end,
    error_response,
    event,
    piece,
    run_endpoint,
    stream_response,
    whole_response,
)
from stamina.instrumentation import LoggingOnRetryHook, set_on_retry_hooks

from rag_core.errors import ConfigError, GenerationError
from rag_core.events import Usage
from rag_core.models.chat import ChatClient, Completion, CompletionDelta
from rag_core.models.endpoint import HttpPool, HttpTransport

T = TypeVar("T")

KEY = "sk-quite-secret-0123456789"
PROMPT = "What may nobody read in a log, since a customer has written it?"
MESSAGES = [{"role": "user", "content": PROMPT}]
SOON, LONG = 0.5, 60.0


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENDPOINT_KEY", KEY)
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def read(client: ChatClient) -> tuple[str, CompletionDelta | str]:
    """The text, and the last delta or how it failed."""
    text, last = "", CompletionDelta()
    try:
        async for delta in client.stream(MESSAGES, temperature=0.1, max_tokens=64):
            text, last = text + delta.text, delta
    except GenerationError as error:
        return text, str(error).replace("the endpoint ", "").partition(" ")[2]
    return text, last


def read_answer(*plays: ScriptedHttpResponse, **settings: Any) -> tuple[str, CompletionDelta | str]:
    with run_endpoint(*plays) as endpoint:
        return on(endpoint, read, **settings)


def on(endpoint: Endpoint, work: Callable[[ChatClient], Coroutine[Any, Any, T]], **settings: Any) -> T:
    async def connect_and_work() -> T:
        async with connect(endpoint, "ENDPOINT_KEY", **{"attempts": 3, **settings}) as client:
            return await work(client)

    return asyncio.run(connect_and_work())


def test_an_answer_comes_in_its_pieces_then_why_it_ended_and_what_it_took() -> None:
    async def deltas(client: ChatClient) -> list[CompletionDelta]:
        return [delta async for delta in client.stream(MESSAGES, temperature=0.1, max_tokens=64)]

    with run_endpoint(stream_response("Water ", "boils.")) as endpoint:
        answer = on(endpoint, deltas)
    assert [delta.text for delta in answer] == ["Water ", "boils.", ""]
    assert answer[-1] == CompletionDelta(finish="stop", usage=Usage(40, 4, 32))
    (request,) = endpoint.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {
        "model": "llama",
        "messages": MESSAGES,
        "temperature": 0.1,
        "max_tokens": 64,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_without_a_key_none_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENDPOINT_KEY")
    with run_endpoint(stream_response("Yes.")) as endpoint:
        assert on(endpoint, read)[0] == "Yes."
    assert "authorization" not in endpoint.requests[0].headers


def test_openai_itself_gets_the_limit_by_its_newer_name() -> None:
    request = of("https://api.openai.com/v1/")._build_request(HttpPool().client(), {"max_tokens": 64})
    assert json.loads(request.content) == {"max_completion_tokens": 64}


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([piece("Yes."), *end()[:1]], "Yes."),
        ([piece("Yes."), *end()[:1], CUT], "Yes."),
        ([piece("Yes."), event("[DONE]")], "Yes."),
        ([piece("Yes."), event("[DONE]"), HANG], "Yes."),
        (
            [b": OPENROUTER PROCESSING\n\n", b'data:{"choices":\ndata:[{"delta":{"content":"Yes."}}]}\r\n\r\n', *end()],
            "Yes.",
        ),
        ([b'data: {"choices": [{"delta": {"content": "\xe2\x82', b'\xac5"}}]}\n', b"\n", *end()], "€5"),
        ([event({"choices": None, "usage": None}), piece("Yes."), *end()], "Yes."),
        ([*end()], ""),
        ([b"event: ping\ndata: {}\n\n", piece("Yes."), b'event: ping\ndata: {"type": "ping"}\n\n', *end()], "Yes."),
        ([b"data: {}\n\n", piece("Yes."), b"data:\n\n", b"id: 3\n\n", *end()], "Yes."),
        ([piece("Yes."), b"data:  [DONE] \n\n", HANG], "Yes."),
    ],
    ids=[
        *("no usage", "cut behind its end", "no reason", "left open", "comments and lines", "split letters"),
        *("null choices", "empty", "pings", "no data", "blanks around the end"),
    ],
)
def test_endpoints_differ_in_how_they_stream_and_are_all_understood(steps: Sequence[Any], text: str) -> None:
    got, last = read_answer(ScriptedHttpResponse(steps=steps))
    assert (got, isinstance(last, CompletionDelta) and last.finish) == (text, "stop")


@pytest.mark.parametrize(
    ("usage_json", "usage"),
    [
        ({"usage": {"prompt_tokens": 40, "completion_tokens": 4}}, Usage(40, 4)),
        ({"choices": [], "usage": {"prompt_tokens": None, "completion_tokens": 4}}, Usage(0, 4)),
        ({"choices": [], "usage": {"prompt_tokens": 40}}, Usage(40, 0)),
        ({"usage": None}, None),
    ],
)
def test_usage_is_read_with_or_without_choices_and_counts(usage_json: object, usage: Usage | None) -> None:
    text, last = read_answer(ScriptedHttpResponse(steps=[piece("Yes."), end()[0], event(usage_json), event("[DONE]")]))
    assert (text, last) == ("Yes.", CompletionDelta(finish="stop", usage=usage))


def test_a_content_type_counts_however_it_is_written() -> None:
    play = ScriptedHttpResponse(
        steps=[piece("Yes."), *end()], headers={"Content-Type": "Text/Event-Stream; charset=UTF-8"}
    )
    assert read_answer(play)[0] == "Yes."


def test_signs_of_life_are_not_pieces_of_an_answer() -> None:
    steps = [piece("Yes."), *(step for _ in range(3) for step in (b"event: ping\ndata: {}\n\n", b": ping\n\n")), HANG]
    text, failure = read_answer(ScriptedHttpResponse(steps=steps), stall_timeout=SOON)
    assert (text, failure) == ("Yes.", "sent no further piece of its answer within 0.5 s")


def test_half_a_character_is_replaced_and_a_whole_one_is_not() -> None:
    steps = [piece("\ud83d\ude00 \\ud83d"), piece("\ud83d"), piece("\ude00 \ud83d!"), *end()]
    assert read_answer(ScriptedHttpResponse(steps=steps))[0] == "😀 \\ud83d\ufffd\ufffd \ufffd!"


def test_an_answer_that_ended_waits_for_its_rest_but_not_until_it_stalls() -> None:
    """Else this test would take a minute, twice."""
    for steps in (end()[:1], end()[:2]):
        with run_endpoint(ScriptedHttpResponse(steps=[piece("Yes."), *steps, HANG])) as endpoint:
            began = monotonic()
            text, last = on(endpoint, read)
            assert (text, last.finish if isinstance(last, CompletionDelta) else last) == ("Yes.", "stop")
            assert monotonic() - began < LONG / 2


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([HANG], "sent no further piece of its answer within 0.5 s"),
        ([CUT], "broke off: RemoteProtocolError: peer closed connection without sending complete message body"),
        ([], "ended the stream before the answer was complete"),
        ([event("{nope")], "sent an invalid chat completion chunk"),
        ([event("[" * 100_000)], "sent an invalid chat completion chunk"),
        ([event({"choices": "none"})], "sent an invalid chat completion chunk"),
        ([event({"foo": 1})], "sent an invalid chat completion chunk"),
        ([event({"error": {"message": "engine died", "code": 500}})], "refused with 500: engine died"),
        ([event({"object": "error", "message": "too long", "code": 400})], "refused with 400: too long"),
        ([event({"error": "out of memory"})], "broke off: out of memory"),
    ],
)
def test_an_answer_that_breaks_off_keeps_its_text_is_not_begun_again_and_gives_the_reason(
    steps: Sequence[Any], reason: str
) -> None:
    with run_endpoint(ScriptedHttpResponse(steps=[piece("Water "), *steps]), stream_response("again")) as endpoint:
        text, failure = on(endpoint, read, stall_timeout=SOON if HANG in steps else LONG)
    assert text == "Water "
    assert str(failure).startswith(reason)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("first", "requests"),
    [
        (ScriptedHttpResponse(steps=[CUT]), 2),
        (ScriptedHttpResponse(steps=[event({"error": {"message": "loading", "code": 503}})]), 2),
        (error_response(500, {"error": {"message": "boom"}}), 2),
        (error_response(408, {}), 2),
        (error_response(529, {}), 2),
    ],
)
def test_a_transient_failure_is_retried_until_the_first_word(first: ScriptedHttpResponse, requests: int) -> None:
    with run_endpoint(first, stream_response("Yes.")) as endpoint:
        assert on(endpoint, read)[0] == "Yes."
    assert len(endpoint.requests) == requests


def test_it_is_tried_again_only_so_many_times() -> None:
    with run_endpoint(error_response(503, {"error": {"message": "loading"}})) as endpoint:
        assert on(endpoint, read, attempts=2) == ("", "refused with 503: loading")
    assert len(endpoint.requests) == 2


def test_it_waits_as_long_as_the_endpoint_asks() -> None:
    in_three_seconds = format_datetime(datetime.now(UTC) + timedelta(seconds=3), usegmt=True)
    for after, least in (("1", 1.0), (in_three_seconds, 0.5)):
        with run_endpoint(
            error_response(429, {"error": {"message": "slow"}}, retry_after=after), stream_response("Yes.")
        ) as endpoint:
            assert on(endpoint, read)[0] == "Yes."
        assert endpoint.requests[1].at - endpoint.requests[0].at >= least


def test_it_does_not_wait_beyond_the_deadline() -> None:
    with run_endpoint(error_response(429, {"error": {"message": "come tomorrow"}}, retry_after="86400")) as endpoint:
        assert on(endpoint, read) == ("", "refused with 429: come tomorrow")
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("play", "reason"),
    [
        (
            error_response(401, {"error": {"message": f"Incorrect API key: {KEY}"}}),
            "refused with 401: Incorrect API key: *** (check the key in ENDPOINT_KEY)",
        ),
        (error_response(404, {"error": "model llama not found"}), "refused with 404: model llama not found"),
        (error_response(400, {"object": "error", "message": "bad\nTraceback", "code": 400}), "refused with 400: bad"),
        (error_response(422, {"detail": "no"}), "refused with 422: no"),
        (
            error_response(400, {"error": {"message": f"cannot read {PROMPT}"}}),
            "refused with 400: reason withheld, it quotes the prompt",
        ),
        (error_response(400, {"error": {"message": "x" * 9000}}), "refused with 400: " + "x" * 300),
        (error_response(307, {}, location="http://elsewhere/"), "refused with 307"),
        (error_response(200, {"error": {"message": "no such model", "code": 404}}), "refused with 404: no such model"),
        (whole_response("Yes."), "must answer with text/event-stream, got application/json"),
        (
            ScriptedHttpResponse(steps=[b"<html>"], headers={"Content-Type": "text/html"}),
            "must answer with text/event-stream, got text/html",
        ),
        (
            ScriptedHttpResponse(steps=[b"<html>"], headers={}),
            "must answer with text/event-stream, got no content type",
        ),
        (
            ScriptedHttpResponse(status=403, steps=[b"forbidden"], headers={"Content-Type": "text/plain"}),
            "refused with 403: forbidden",
        ),
    ],
)
def test_a_permanent_failure_is_reported_at_once_with_the_endpoints_reason(
    play: ScriptedHttpResponse, reason: str
) -> None:
    with run_endpoint(play) as endpoint:
        assert on(endpoint, read) == ("", reason)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "play",
    [
        ScriptedHttpResponse(slow=True),
        ScriptedHttpResponse(steps=[HANG]),
        ScriptedHttpResponse(status=500, steps=[HANG]),
    ],
)
def test_without_a_word_in_time_it_is_left(play: ScriptedHttpResponse) -> None:
    with run_endpoint(play) as endpoint:
        assert on(endpoint, read, first_token_timeout=SOON) == ("", "sent no answer within 0.5 s")
        assert endpoint.client_left.wait(LONG)


def test_an_endpoint_that_is_not_there_is_named() -> None:
    with run_endpoint() as endpoint:
        pass
    text, failure = on(endpoint, read)
    assert (text, str(failure).partition(":")[0]) == ("", "cannot be reached")


def test_a_failure_is_of_one_kind_whether_or_not_it_was_tried_again() -> None:
    async def stream(client: ChatClient) -> None:
        async for _ in client.stream(MESSAGES, temperature=0, max_tokens=64):
            pass

    async def complete(client: ChatClient) -> None:
        await client.complete(MESSAGES, max_tokens=2)

    for work in (stream, complete):
        for play in (
            error_response(503, {}),
            error_response(400, {}),
            ScriptedHttpResponse(steps=[piece("Water "), CUT]),
        ):
            with run_endpoint(play) as endpoint, pytest.raises(GenerationError) as failed:
                on(endpoint, work, attempts=1)
            assert type(failed.value) is GenerationError


def test_a_prompt_that_is_not_unicode_is_refused_and_not_shown() -> None:
    async def complete_surrogate(client: ChatClient) -> None:
        await client.complete([{"role": "user", "content": f"{PROMPT} \udcff"}], max_tokens=2)

    with run_endpoint() as endpoint, pytest.raises(GenerationError, match="got half a surrogate pair") as refused:
        on(endpoint, complete_surrogate)
    assert PROMPT not in str(refused.value)
    assert refused.value.__cause__ is None
    assert not endpoint.requests


@pytest.mark.parametrize("proxy", ["foo:bar:baz", "ftp://me:hush@proxy"])
def test_a_proxy_that_is_not_a_url_is_refused_and_not_shown(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with run_endpoint() as endpoint, pytest.raises(ConfigError, match="must be URLs of http or https") as refused:
        on(endpoint, read)
    assert proxy not in str(refused.value)


def test_a_proxy_at_no_port_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:99999")
    with run_endpoint() as endpoint:
        text, failure = on(endpoint, read)
    assert (text, str(failure).partition(":")[0]) == ("", "broke off")


def test_a_reader_who_leaves_ends_the_work_at_the_endpoint() -> None:
    async def close_stream(client: ChatClient) -> str:
        deltas = client.stream(MESSAGES, temperature=0, max_tokens=64)
        first = await anext(deltas)
        await deltas.aclose()
        return first.text

    async def cancel_reading(client: ChatClient) -> str:
        begun = asyncio.Event()

        async def reading() -> None:
            async for _ in client.stream(MESSAGES, temperature=0, max_tokens=64):
                begun.set()

        task = asyncio.create_task(reading())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        return "Water " if task.cancelled() else ""

    for leaving in (close_stream, cancel_reading):
        with run_endpoint(ScriptedHttpResponse(steps=[piece("Water "), HANG])) as endpoint:

            async def leave_and_wait(
                client: ChatClient, leaving: Any = leaving, endpoint: Endpoint = endpoint
            ) -> tuple[str, bool]:
                return await leaving(client), await asyncio.to_thread(endpoint.client_left.wait, LONG)

            assert on(endpoint, leave_and_wait) == ("Water ", True)


def test_connections_are_used_again_until_their_pool_is_closed_which_opens_new_ones_in_another_event_loop() -> None:
    pool = HttpPool()

    async def thrice(url: str) -> None:
        async with aclosing(pool):
            for _ in range(3):
                transport = HttpTransport(pool, base_url=url, api_key_env="")
                client = ChatClient(transport, model="m", first_token_timeout=LONG, stall_timeout=LONG, attempts=1)
                assert (await read(client))[0] == "Yes."

    with run_endpoint(stream_response("Yes.")) as endpoint:
        asyncio.run(thrice(endpoint.url))
        assert endpoint.connections == 1
        asyncio.run(thrice(endpoint.url))
        assert endpoint.connections == 2


def test_a_whole_answer_comes_with_its_schema_and_probabilities() -> None:
    async def grade(client: ChatClient) -> Completion:
        return await client.complete(MESSAGES, schema={"type": "integer"}, logprobs=True, max_tokens=2)

    with run_endpoint(error_response(503, {}), whole_response("yes", [{"yes": -0.1, "no": -2.3}])) as endpoint:
        assert on(endpoint, grade) == Completion(text="yes", logprobs=({"yes": -0.1, "no": -2.3},))
    body = endpoint.requests[1].body
    assert body["response_format"]["json_schema"]["schema"] == {"type": "integer"}
    assert (body["logprobs"], body["top_logprobs"], body["temperature"]) == (True, 20, 0.0)
    assert "stream" not in body


@pytest.mark.parametrize("alternatives", [None, [{"token": "yes", "logprob": None}]])
def test_a_whole_answer_can_lack_the_requested_probabilities(alternatives: object) -> None:
    async def grade(client: ChatClient) -> Completion:
        return await client.complete(MESSAGES, logprobs=True, max_tokens=2)

    token = {"token": "yes", "logprob": -0.1, "top_logprobs": alternatives}
    choice = {"message": {"content": "yes"}, "finish_reason": "length", "logprobs": {"content": [token]}}
    with run_endpoint(error_response(200, {"choices": [choice]})) as endpoint:
        assert on(endpoint, grade) == Completion(text="yes", logprobs=({},))


@pytest.mark.parametrize(
    ("play", "reason"),
    [
        (ScriptedHttpResponse(steps=[b"<html>"]), "sent an invalid chat completion"),
        (error_response(200, {"choices": [{"text": "x"}]}), "sent an invalid chat completion"),
        (error_response(200, {"error": "no such model"}), "broke off: no such model"),
        (error_response(400, {"error": "no schemas"}), "refused with 400: no schemas"),
        (ScriptedHttpResponse(steps=[b"{", HANG]), "sent no answer within 0.5 s"),
        (ScriptedHttpResponse(steps=[b"{", CUT]), "broke off: RemoteProtocolError"),
    ],
)
def test_an_invalid_whole_answer_is_named(play: ScriptedHttpResponse, reason: str) -> None:
    async def complete_briefly(client: ChatClient) -> Completion:
        return await client.complete(MESSAGES, max_tokens=2)

    with run_endpoint(play) as endpoint, pytest.raises(GenerationError, match=reason):
        on(endpoint, complete_briefly, first_token_timeout=SOON if HANG in play.steps else LONG, attempts=1)


@pytest.fixture
def log_retries() -> Iterator[None]:
    set_on_retry_hooks([LoggingOnRetryHook])
    yield
    set_on_retry_hooks(None)


@pytest.mark.usefixtures("log_retries")
def test_the_key_and_the_prompt_are_in_no_log_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    plays = [
        (stream_response("Yes."),),
        (error_response(401, {"error": {"message": f"Bearer {KEY} is not known"}}),),
        (error_response(500, {"error": {"message": f"{KEY}: {PROMPT}"}}),),
        (ScriptedHttpResponse(steps=[piece("Water "), CUT]),),
        (ScriptedHttpResponse(steps=[event({"error": KEY})]),),
    ]
    outputs = [repr(read_answer(*play_group)) for play_group in plays]
    with run_endpoint() as endpoint:
        pass

    async def describe_client(client: ChatClient) -> str:
        return repr(client) + str(vars(client)) + str(vars(client._transport).keys())

    outputs.append(repr(on(endpoint, read)) + on(endpoint, describe_client))
    assert {"httpx2", "httpcore2.http11", "stamina"} <= {record.name for record in caplog.records}
    logged = "".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    for secret in (KEY, PROMPT):
        assert secret not in logged
        assert secret not in "".join(outputs)


@pytest.mark.parametrize("unusable", ["sk one", "sk\u200bone", "sk\x7fone"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(unusable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENDPOINT_KEY", unusable)
    with pytest.raises(ConfigError) as refused:
        of("http://host/v1", "ENDPOINT_KEY")
    assert str(refused.value) == "the key in ENDPOINT_KEY must be printable ASCII without blanks"


def of(base_url: str, api_key_env: str = "") -> HttpTransport:
    return HttpTransport(HttpPool(), base_url=base_url, api_key_env=api_key_env)


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="base_url must not contain a password") as refused:
        of("https://me:hush@host/v1")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("base_url", "rule"),
    [
        ("http://", "base_url must name a host, got none"),
        ("http://host:99999/v1", "base_url's port must be at most 65535, got 99999"),
        ("http://host:port/v1", "base_url must be a URL"),
    ],
)
def test_a_url_that_leads_nowhere_is_refused(base_url: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        of(base_url)


def test_openais_key_goes_to_openai_alone_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert of("https://api.openai.com/v1")._key == KEY
    for elsewhere in ("http://127.0.0.1:8000/v1", "https://api.openai.com.evil.example/v1", "https://openai.com/v1"):
        assert of(elsewhere)._key == ""
        assert of(elsewhere, "OPENAI_API_KEY")._key == KEY
    monkeypatch.setenv("OTHER_KEY", "sk-other")
    assert of("https://api.openai.com/v1", "OTHER_KEY")._key == "sk-other"
