"""A question that is asked back, in the formats of the gateway."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from fakes.answering import ScriptedRetriever, passage
from fakes.serving import scripted_graph, serve_graph

from rag_core.conversation.clarification import SpreadClarifier

HITS = [
    passage(n, f"The opening time in {city} is {n + 7}:00.", title=f"{city} office").hit
    for n, city in enumerate(("Oslo", "Bergen"), 1)
]
EQUAL_HITS = [*(replace(hit, score=1.0) for hit in HITS), passage(9, "Soup is served at noon.", title="Canteen").hit]
QUESTION = "What is the opening time?"
TEXT = "Which one?\n\n1. Oslo office\n2. Bergen office"
CLARIFICATION = {"question": "Which one?", "options": ["Oslo office", "Bergen office"]}
CHAT = {"model": "default", "messages": [{"role": "user", "content": QUESTION}]}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    services = scripted_graph(ScriptedRetriever(hits=EQUAL_HITS))
    answerer = replace(services.answerer, clarifier=SpreadClarifier(question="Which one?"))
    with (
        serve_graph(replace(services, answerer=answerer)) as address,
        httpx2.Client(base_url=address) as client,
    ):
        yield client


def read_data(response: httpx2.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_an_answer_has_the_question_and_its_options(client: httpx2.Client) -> None:
    body = client.post("/v1/answer", json={"question": QUESTION}).json()
    assert (body["answer"], body["finish_reason"], body["clarification"]) == (TEXT, "clarification", CLARIFICATION)
    assert body["citations"] == []


def test_a_stream_has_the_event_before_the_text(client: httpx2.Client) -> None:
    response = client.post("/v1/answer", json={"question": QUESTION, "stream": True})
    names = [line.removeprefix("event: ") for line in response.text.splitlines() if line.startswith("event: ")]
    assert names.index("clarification") < names.index("text_delta")
    assert CLARIFICATION in read_data(response)


def test_a_chat_completion_has_it_as_its_content(client: httpx2.Client) -> None:
    body = client.post("/v1/chat/completions", json=CHAT).json()
    message = body["choices"][0]["message"]
    assert (message["content"], body["choices"][0]["finish_reason"]) == (TEXT, "stop")
    assert message["rag"]["clarification"] == CLARIFICATION
    chunks = read_data(client.post("/v1/chat/completions", json={**CHAT, "stream": True}))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content", "") for delta in deltas) == TEXT


def test_a_client_that_sends_the_history_is_not_asked_twice(client: httpx2.Client) -> None:
    messages = [*CHAT["messages"], {"role": "assistant", "content": TEXT}, *CHAT["messages"]]  # type: ignore[misc]
    body = client.post("/v1/chat/completions", json={**CHAT, "messages": messages}).json()
    assert body.get("choices", [{}])[0].get("message", {}).get("content") != TEXT
