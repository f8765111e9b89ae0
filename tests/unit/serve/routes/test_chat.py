"""OpenAI's own client over a real socket, and what holds for every answer in its shape."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from example_counts import scale_examples
from fakes.answering import ScriptedGenerator, ScriptedJudge, ScriptedRetriever, citation, passage
from fakes.serving import RecordingRetriever, scripted_graph, serve_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import APIError, AsyncOpenAI, BadRequestError, NotFoundError, OpenAI, UnprocessableEntityError

from rag_core.answering.judging.guard import BLOCKED_ANSWER
from rag_core.errors import GenerationError, RagError, StageTimeoutError
from rag_core.errors import NotFoundError as Missing
from rag_core.events import Event
from rag_core.storage.catalog import Catalog
from rag_core.storage.postgres import Postgres
from rag_core.types import Answer, Query, Reply, StageReport
from rag_core.wire.shape import json_bytes
from serve.bodies.chat_events import (
    Envelope,
    can_retract,
    closing_chunks,
    completion_usage,
    describe_completion,
    event_chunks,
    sources_block,
    url_citations,
)
from serve.http import event_stream as streaming
from serve.services import Services, ShortQueryRetriever

HITS = [
    passage(1, "Keys are replaced every 45 days.", title="Keys", uri="https://host/keys").hit,
    passage(2, "Locks open at noon.").hit,
]
PIECES = ["Keys are replaced every ", "45 days [1]. ", "Locks open [2]."]
TEXT = "".join(PIECES)
USER = {"role": "user", "content": "How often?"}
ASKED: dict[str, Any] = {"model": "default", "messages": [USER]}
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def chat_graph(generator: ScriptedGenerator | None = None, **parts: Any) -> Services:
    writing = generator or ScriptedGenerator(answers=[PIECES] * 9)
    return scripted_graph(parts.pop("retriever", ScriptedRetriever(hits=HITS)), writing, **parts)


@contextmanager
def client(graph: Services | None = None) -> Iterator[OpenAI]:
    with serve_graph(graph or chat_graph()) as address, OpenAI(base_url=f"{address}/v1", **KEYLESS) as asking:
        yield asking


KEYLESS: dict[str, Any] = {"api_key": "none", "max_retries": 0}


def fold_chunks(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Builds a message as a client does: joins the texts, and keeps the last value of every other key."""
    message: dict[str, Any] = {"content": "", "finish_reason": None}
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            message |= {**delta, "content": message["content"] + (delta.get("content") or "")}
            message["finish_reason"] = choice["finish_reason"]
    return message


def whole(body: Mapping[str, Any]) -> dict[str, Any]:
    (choice,) = body["choices"]
    return {key: value for key, value in choice["message"].items() if key != "refusal"} | {
        "finish_reason": choice["finish_reason"]
    }


def remove_times(message: dict[str, Any]) -> dict[str, Any]:
    return message | {"rag": {key: value for key, value in message["rag"].items() if key != "timings_ms"}}


def dump_chunk(chunk: Any) -> dict[str, Any]:
    return chunk.model_dump(exclude_unset=True)  # type: ignore[no-any-return]


def test_a_completion_has_its_markers_its_annotations_and_what_is_known_of_it() -> None:
    with client() as asking:
        answer = asking.chat.completions.create(**ASKED)
    message = answer.choices[0].message
    assert (message.content, answer.choices[0].finish_reason, answer.model) == (TEXT, "stop", "default")
    assert message.annotations is not None
    citations = [annotation.url_citation for annotation in message.annotations]
    assert [TEXT[citation.start_index : citation.end_index] for citation in citations] == ["[1]", "[2]"]
    assert [(citation.title, citation.url) for citation in citations] == [
        ("Keys", "https://host/keys"),
        ("Document 2", "file:///2.md"),
    ]
    rag = (message.model_extra or {})["rag"]
    assert rag.keys() == {
        *("citations", "conversation_id", "grounding", "degraded", "degraded_reasons", "pipeline_version"),
        *("confidence", "coverage", "timings_ms", "clarification"),
    }
    assert [citation["n"] for citation in rag["citations"]] == [1, 2]
    assert rag["grounding"]["verdict"] == "supported"
    assert (rag["confidence"], rag["coverage"]) == (None, 1.0)


def test_a_stream_sends_its_role_then_its_sources_then_its_text_and_why_it_ended() -> None:
    with client() as asking:
        chunks = [dump_chunk(chunk) for chunk in asking.chat.completions.create(**ASKED, stream=True)]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert [source["title"] for source in deltas[1]["rag"]["sources"]] == ["Keys", "Document 2"]
    assert all(delta.keys() == {"content"} for delta in deltas[2:-2])
    assert "".join(delta["content"] for delta in deltas[2:-2]) == TEXT
    assert deltas[-2].keys() == {"annotations", "rag"}
    assert deltas[-1] == {}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1


def test_the_stream_ends_with_done_and_is_not_to_be_kept() -> None:
    with serve_graph(chat_graph()) as address:
        response = httpx2.post(f"{address}/v1/chat/completions", json={**ASKED, "stream": True})
    assert response.text.endswith("data: [DONE]\n\n")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"


def test_text_arrives_while_the_rest_is_being_written() -> None:
    slow = ScriptedGenerator(answers=[PIECES], seconds=0.05)
    with client(chat_graph(slow)) as asking:
        contents = (chunk.choices[0].delta.content for chunk in asking.chat.completions.create(**ASKED, stream=True))
        closed = [slow.closed for content in contents if content]
    assert (closed[0], closed[-1]) == (0, 1)


def test_a_stream_that_nobody_reads_on_stops_its_generator() -> None:
    endless = ScriptedGenerator(answers=[["Keys. "] * 10_000], seconds=0.01)

    async def read_one(address: str) -> None:
        async with (
            AsyncOpenAI(base_url=f"{address}/v1", **KEYLESS) as asking,
            await asking.chat.completions.create(**ASKED, stream=True) as stream,
        ):
            await anext(aiter(stream))
        while not endless.closed:
            await asyncio.sleep(0.01)

    with serve_graph(chat_graph(endless)) as address:
        asyncio.run(asyncio.wait_for(read_one(address), 30))


def test_usage_is_sent_last_and_only_if_it_is_requested() -> None:
    with client() as asking:
        without = list(asking.chat.completions.create(**ASKED, stream=True))
        chunks = list(asking.chat.completions.create(**ASKED, stream=True, stream_options={"include_usage": True}))
        answer = asking.chat.completions.create(**ASKED)
    assert [chunk.usage for chunk in without] == [None] * len(without)
    assert chunks[-1].choices == []
    assert chunks[-1].usage == answer.usage


def test_usage_counts_an_answer_that_was_written_twice_twice() -> None:
    figures = {"prompt_tokens": 100.0, "completion_tokens": 10.0, "cached_tokens": 90.0}
    stages = (StageReport(stage="generate", seconds=1.0, figures=figures), StageReport(stage="judge", seconds=1.0))
    reply = Reply(query=Query(text="?"), standalone="?", answer=Answer(text=""), stages=stages * 2)
    assert completion_usage(reply).model_dump() == {
        "prompt_tokens": 200,
        "completion_tokens": 20,
        "total_tokens": 220,
        "prompt_tokens_details": {"cached_tokens": 180},
    }


def test_the_asynchronous_client_reads_the_same() -> None:
    async def both(address: str) -> tuple[dict[str, Any], dict[str, Any]]:
        async with AsyncOpenAI(base_url=f"{address}/v1", **KEYLESS) as asking:
            answer = await asking.chat.completions.create(**ASKED)
            stream = await asking.chat.completions.create(**ASKED, stream=True)
            return whole(answer.model_dump(exclude_unset=True)), fold_chunks(
                [dump_chunk(chunk) async for chunk in stream]
            )

    with serve_graph(chat_graph()) as address:
        answer, streamed = asyncio.run(both(address))
    assert remove_times(streamed) == remove_times(answer)


def test_the_client_that_folds_a_stream_by_itself_gets_the_answer_too() -> None:
    with client() as asking:
        with asking.chat.completions.stream(**ASKED) as stream:
            message = stream.get_final_completion().choices[0].message
        answer = asking.chat.completions.create(**ASKED).choices[0].message
    assert message.content == answer.content
    rag = (message.model_extra or {})["rag"]
    assert len(rag.pop("sources")) == 2
    assert remove_times({"rag": rag}) == remove_times({"rag": (answer.model_extra or {})["rag"]})


def test_the_clients_messages_are_the_history_but_for_a_conversation_that_the_server_knows() -> None:
    writing = ScriptedGenerator(answers=[PIECES] * 9)
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Keys"}, {"type": "text", "text": "?"}]},
        {"role": "assistant", "content": "Yes.", "refusal": None, "annotations": []},
    ]
    with client(chat_graph(writing)) as asking:
        asking.chat.completions.create(model="default", messages=[*history, USER])
        for _ in range(2):
            asking.chat.completions.create(
                model="default", messages=[*history, USER], extra_body={"rag": {"conversation_id": "c"}}
            )
    client_messages = [("user", "Keys?"), ("assistant", "Yes.")]
    servers = [("user", "How often?"), ("assistant", TEXT)]
    histories = [[(message.role, message.text) for message in prompt.history] for prompt in writing.prompts]
    assert histories == [client_messages, [], servers]
    assert {prompt.question or prompt.query.text for prompt in writing.prompts} == {"How often?"}


def test_a_long_history_is_read_from_its_end() -> None:
    writing = ScriptedGenerator(answers=[PIECES])
    history = [{"role": "user", "content": str(number)} for number in range(12)]
    with client(chat_graph(writing)) as asking:
        asking.chat.completions.create(model="default", messages=[*history, USER])
    assert [message.text for message in writing.prompts[0].history] == [str(number) for number in range(2, 12)]


@pytest.mark.parametrize(
    ("model", "rag", "collection"),
    [
        ("docs", {}, "docs"),
        ("docs:default", {}, "docs"),
        ("team:docs", {}, "team:docs"),
        ("team:docs:default", {}, "team:docs"),
        ("docs", {"profile": "default"}, "docs"),
        ("docs:default", {"collection": "laws"}, "laws"),
    ],
)
def test_the_model_names_the_collection(model: str, rag: dict[str, str], collection: str) -> None:
    retriever = RecordingRetriever(hits=HITS)
    with client(chat_graph(retriever=retriever)) as asking:
        asking.chat.completions.create(model=model, messages=[USER], extra_body={"rag": rag})
    (query,) = retriever.queries
    assert (query.collection, query.session_id, query.tenant) == (collection, "", "default-tenant")


@pytest.mark.parametrize("stream", [False, True])
def test_a_collection_that_is_not_there_is_not_found(stream: bool) -> None:
    missing = ScriptedRetriever(hits=[], error=Missing("no collection 'x'"))
    with client(chat_graph(retriever=missing)) as asking, pytest.raises(NotFoundError) as raised:
        asking.chat.completions.create(model="x", messages=[USER], stream=stream)
    assert raised.value.code == "not_found"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"n": 2}, "#/n"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "#/tools"),
        ({"response_format": {"type": "json_object"}}, "#/response_format"),
        ({"logprobs": True}, "#/logprobs"),
        ({"surprise": 1}, "#/surprise"),
        ({"model": ""}, "#/model"),
        ({"rag": None}, "#/rag"),
        ({"stream": "yes"}, "#/stream"),
        ({"surprise": None}, "#/surprise"),
        ({"rag": {"top_k": 0}}, "#/rag/top_k"),
        ({"rag": {"guard": "perhaps"}}, "#/rag/guard"),
        ({"rag": {"citations": "footnotes"}}, "#/rag/citations"),
    ],
)
def test_an_unsupported_option_is_refused_by_its_name(body: dict[str, Any], pointer: str) -> None:
    with client() as asking, pytest.raises(UnprocessableEntityError) as raised:
        asking.post("/chat/completions", body={**ASKED, **body}, cast_to=object)
    errors = raised.value.response.json()["errors"]
    assert [error["pointer"] for error in errors] == [pointer]
    assert raised.value.code == "invalid_request"


@pytest.mark.parametrize(
    ("messages", "pointer"),
    [
        ([], "messages"),
        ([{"role": "assistant", "content": "?"}], "messages"),
        ([{"role": "tool", "content": "?"}], "messages/0/role"),
        ([{"role": "user", "content": " "}], "messages"),
        ([{"role": "user", "content": "x" * 32_001}], "messages/0/content"),
        ([{"role": "user", "content": [{"type": "text", "text": "x" * 16_001}] * 2}], "messages/0/content"),
        ([{"role": "assistant", "content": "x" * 32_001}, USER], "messages/0/content"),
        ([{"role": "user", "content": "a\x00b"}], "messages/0/content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages/0/content"),
        ([{"role": "user", "content": ["?"]}], "messages/0/content/0"),
    ],
)
def test_messages_that_cannot_be_read_are_a_bad_request_to_the_client(
    messages: list[dict[str, Any]], pointer: str
) -> None:
    with client() as asking, pytest.raises(BadRequestError) as raised:
        asking.post("/chat/completions", body={"model": "default", "messages": messages}, cast_to=object)
    assert (raised.value.code, raised.value.param) == ("invalid_messages", pointer)
    assert [error["pointer"] for error in raised.value.response.json()["errors"]] == [f"#/{pointer}"]


def test_a_question_of_32000_characters_is_read_whole() -> None:
    writing, long = ScriptedGenerator(answers=[PIECES]), "key " * 7_999 + "keys"
    with client(chat_graph(writing)) as asking:
        answer = asking.chat.completions.create(model="default", messages=[{"role": "user", "content": long}])
    assert answer.choices[0].message.content == TEXT
    assert [prompt.query.text for prompt in writing.prompts] == [long]


@pytest.mark.parametrize(
    ("question", "searched"),
    [
        ("How often?", "How often?"),
        ("k" * 1_000, "k" * 1_000),
        ("key " * 300, ("key " * 250).strip()),
        ("key " * 249 + "rotations", ("key " * 249).strip()),
        ("key\n" * 300, ("key\n" * 250).strip()),
        ("k" * 2_000, "k" * 1_000),
    ],
)
def test_a_long_question_is_searched_by_its_beginning_up_to_a_words_end(question: str, searched: str) -> None:
    retriever = RecordingRetriever(hits=HITS)
    hits = asyncio.run(ShortQueryRetriever(retriever).retrieve(Query(text=question, collection="docs"), 1))
    assert hits == HITS[:1]
    assert retriever.queries == [Query(text=searched, collection="docs")]


@pytest.mark.parametrize("profile", ["nowhere", "gpu"])
def test_a_profile_that_is_not_served_is_refused_by_its_name(profile: str) -> None:
    with client() as asking, pytest.raises(UnprocessableEntityError, match=profile):
        asking.post("/chat/completions", body={**ASKED, "rag": {"profile": profile}}, cast_to=object)


def test_sampling_options_are_accepted_without_effect() -> None:
    harmless = {
        "temperature": 0.2,
        "max_tokens": 5,
        "stop": ["."],
        "n": 1,
        "user": "u",
        "tools": None,
        "top_p": 1,
        "stream": None,
    }
    with client() as asking:
        assert asking.chat.completions.create(**ASKED, **harmless).choices[0].message.content == TEXT


@pytest.mark.parametrize(
    ("error", "code"), [(GenerationError("the model broke"), "generation"), (RuntimeError("hunter2"), "generation")]
)
def test_a_fault_after_the_sources_is_reported_in_the_stream_before_its_end(
    error: Exception, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    graph = chat_graph(ScriptedGenerator(answers=[[]] * 2, error=error))
    with serve_graph(graph) as address:
        text = httpx2.post(f"{address}/v1/chat/completions", json={**ASKED, "stream": True}).text
        with OpenAI(base_url=f"{address}/v1", **KEYLESS) as asking, pytest.raises(APIError) as raised:
            list(asking.chat.completions.create(**ASKED, stream=True))
    assert raised.value.code == code
    fault, end = text.removesuffix("\n\n").split("\n\n")[-2:]
    assert json.loads(fault.removeprefix("data: "))["error"]["code"] == code
    assert end == "data: [DONE]"
    assert "hunter2" not in text
    assert ("hunter2" in caplog.text) is isinstance(error, RuntimeError)


@pytest.mark.parametrize("stream", [False, True])
def test_a_late_search_is_a_problem_with_its_own_status(stream: bool) -> None:
    late: RagError = StageTimeoutError("retrieve", 1.0)
    with serve_graph(chat_graph(retriever=ScriptedRetriever(hits=[], error=late))) as address:
        response = httpx2.post(f"{address}/v1/chat/completions", json={**ASKED, "stream": stream})
    assert (response.status_code, response.json()["failed_stage"]) == (504, "retrieve")


def test_a_silent_search_begins_the_stream_with_comments_and_reports_its_fault_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_SECONDS", 0.02)
    slow = ScriptedRetriever(hits=[], seconds=0.2, error=StageTimeoutError("retrieve", 0.2))
    with serve_graph(chat_graph(retriever=slow)) as address:
        response = httpx2.post(f"{address}/v1/chat/completions", json={**ASKED, "stream": True})
    frames = response.text.removesuffix("\n\n").split("\n\n")
    assert (response.status_code, frames[0], frames[-1]) == (200, ": keep-alive", "data: [DONE]")
    assert json.loads(frames[-2].removeprefix("data: "))["error"]["code"] == "stage_timeout"


def test_an_answer_that_can_be_retracted_is_not_shown_before_it_is_final() -> None:
    judge = ScriptedJudge(words={"Locks": "unsupported"})
    with client(chat_graph(guard=("block", "after"), judge=judge)) as asking:
        chunks = [dump_chunk(chunk) for chunk in asking.chat.completions.create(**ASKED, stream=True)]
    contents = [text for chunk in chunks if (text := chunk["choices"][0]["delta"].get("content"))]
    assert contents == [BLOCKED_ANSWER]
    assert chunks[-1]["choices"][0]["finish_reason"] == "content_filter"


def test_a_broken_off_answer_says_that_it_is_not_whole() -> None:
    broken = ScriptedGenerator(answers=[["Keys are replaced [1]."]], error=GenerationError("gone"))
    with client(chat_graph(broken)) as asking:
        answer = asking.chat.completions.create(**ASKED)
    assert answer.choices[0].finish_reason == "length"
    assert (answer.choices[0].message.model_extra or {})["rag"]["degraded"] == ["generate"]


@pytest.mark.parametrize("stream", [False, True])
def test_citations_are_annotations_or_a_block_of_markdown_or_markers_alone(stream: bool) -> None:
    def complete(asking: OpenAI, form: str) -> dict[str, Any]:
        extra = {"rag": {"citations": form}}
        answer: Any = asking.chat.completions.create(**ASKED, stream=stream, extra_body=extra)
        return fold_chunks(map(dump_chunk, answer)) if stream else whole(answer.model_dump(exclude_unset=True))

    with client() as asking:
        annotated, markdown, bare = (complete(asking, form) for form in ("annotations", "markdown", "none"))
    assert markdown["content"] == (TEXT + "\n\n**Sources**\n\n- [1] [Keys](<https://host/keys>)\n- [2] Document 2")
    assert annotated["content"] == bare["content"] == TEXT
    assert [len(message["annotations"]) for message in (annotated, markdown, bare)] == [2, 0, 0]
    assert [len(message["rag"]["citations"]) for message in (annotated, markdown, bare)] == [2, 2, 2]


def test_stages_are_shown_if_they_are_asked_for() -> None:
    with client() as asking:
        answer = asking.chat.completions.create(**ASKED, extra_body={"rag": {"explain": True}})
    explained = (answer.choices[0].message.model_extra or {})["rag"]["explain"]
    assert explained["standalone_question"] == "How often?"
    assert {row["stage"] for row in explained["stages"]} >= {"retrieve", "select", "generate", "judge"}


@pytest.mark.postgres
def test_each_collection_is_a_model_with_and_without_the_profile(store: Postgres) -> None:
    with store.connect() as connection:
        Catalog(connection, "default-tenant").ensure_collection("docs")
        Catalog(connection, "another-tenant").ensure_collection("secret")
    with client(chat_graph(postgres=store)) as asking:
        assert [model.id for model in asking.models.list()] == ["docs", "docs:default"]


@pytest.mark.parametrize(
    ("title", "uri", "line"),
    [
        ("Keys", "https://a/b", "[Keys](<https://a/b>)"),
        ("", "https://a/b_c", "[https://a/b\\_c](<https://a/b_c>)"),
        ("Keys", "file:///keys.md", "Keys"),
        ("Keys", "javascript:alert(1)", "Keys"),
        ("Keys", "https://a/b>c", "Keys"),
        ("a](http://evil/\n# *b*", "https://a/b", "[a\\] ((link removed) # \\*b\\*](<https://a/b>)"),
    ],
)
def test_a_source_cannot_write_markdown_into_the_block(title: str, uri: str, line: str) -> None:
    hostile = replace(citation(1, (0, 1), (1, 4)), title=title, uri=uri)
    assert sources_block([hostile, citation(1, (5, 6), (6, 9))]) == f"\n\n**Sources**\n\n- [1] {line}"


def test_without_citations_there_is_no_block() -> None:
    assert sources_block([]) == ""


def test_a_citation_with_two_markers_is_two_annotations_in_the_order_of_the_text() -> None:
    twice = replace(citation(1, (0, 10), (11, 14)), spans=((11, 14), (20, 23)))
    between = citation(2, (0, 10), (14, 17))
    places = [annotation.url_citation.start_index for annotation in url_citations([twice, between])]
    assert places == [11, 14, 20]


PARTS = ["Keys are replaced", " [1]", "[2]", "[9]", "[1,2]", "【1】", ". ", "\n\n", "`[1]`", "Ключи", "鍵", "["]
GUARDS = st.sampled_from(
    [
        *[("off", "after"), ("flag", "after"), ("flag", "sentence"), ("block", "after"), ("block", "sentence")],
        *[("block", "buffer"), ("regenerate", "after"), ("regenerate", "buffer")],
    ]
)


@settings(max_examples=scale_examples(200), deadline=None)
@given(
    text=st.lists(st.sampled_from(PARTS), max_size=10).map("".join),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    guard=GUARDS,
    words=st.sampled_from([{}, {"Keys": "unsupported"}, {"": "unsupported"}]),
    form=st.sampled_from(["annotations", "markdown", "none"]),
    explain=st.booleans(),
)
def test_the_stream_folds_to_the_whole_answer_and_annotations_are_its_markers(
    text: str, cuts: list[int], guard: tuple[str, str], words: dict[str, Any], form: Any, explain: bool
) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(places)]
    graph = chat_graph(ScriptedGenerator(answers=[pieces] * 2), guard=guard, judge=ScriptedJudge(words=words))
    hold_text = can_retract(graph.settings.guard)
    shape = Envelope(
        id="1",
        created=0,
        model="m",
        pipeline_version="v",
        citations=form,
        explain=explain,
        usage=True,
        hold_text=hold_text,
    )
    reply, events = asyncio.run(record_events(graph))
    chunks = [chunk for event in events for chunk in event_chunks(event, shape)]
    streamed = [json.loads(json_bytes(chunk)) for chunk in (*chunks, *closing_chunks(reply, shape, NOW))]
    body = json.loads(json_bytes(describe_completion(reply, shape, NOW)))
    message = whole(body)
    assert fold_chunks(streamed) == message
    assert streamed[-1]["usage"] == body["usage"]
    for annotation in message["annotations"]:
        place = annotation["url_citation"]
        assert message["content"][place["start_index"] : place["end_index"]] in {"[1]", "[2]"}


async def record_events(graph: Services) -> tuple[Reply, list[Event]]:
    events: list[Event] = []

    async def hear(event: Event) -> None:
        events.append(event)

    return await graph.answerer.answer(Query(text="?"), hear), events
