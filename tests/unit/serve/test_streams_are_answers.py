"""The stream of a request is equal to its whole answer, in both formats, whatever is written, judged or broken."""

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from example_counts import scale_examples
from fakes.answering import ScriptedGenerator, ScriptedJudge, ScriptedRetriever, passage
from fakes.serving import scripted_graph
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rag_core.errors import GenerationError
from rag_core.types import Grade
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles

HITS = [passage(1, "Keys are replaced every 45 days.").hit, passage(2, "Locks open at noon.").hit]
PARTS = ["Keys are replaced", " [1]", "[2]", "[9]", "[1,2]", "【1】", ". ", "\n\n", "`[1]`", "Ключи", "鍵", "["]
UNCHECKED = {"verdict": "unchecked", "score": 0.0, "method": "", "claims": []}
GUARDS = st.sampled_from(
    [
        *[("off", "after"), ("flag", "after"), ("flag", "sentence"), ("block", "after"), ("block", "sentence")],
        *[("block", "buffer"), ("regenerate", "after"), ("regenerate", "buffer")],
    ]
)
JUDGED: list[dict[str, Grade]] = [{}, {"Keys": "unsupported"}, {"": "unsupported"}]

Frames = Sequence[tuple[str, Any]]


@pytest.mark.slow
@settings(
    max_examples=scale_examples(60), deadline=None, phases=[Phase.explicit, Phase.generate]
)  # a failure is not shrunk: minutes
@given(
    text=st.lists(st.sampled_from(PARTS), max_size=10).map("".join),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    guard=GUARDS,
    words=st.sampled_from(JUDGED),
    broken=st.booleans(),
)
def test_a_stream_folds_to_the_whole_answer(
    text: str, cuts: list[int], guard: tuple[str, str], words: dict[str, Grade], broken: bool
) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(places)]
    error = GenerationError("the endpoint is away") if broken else None
    generator = ScriptedGenerator(answers=[pieces] * 8, error=error)
    answer, frames, completion, chunks = asyncio.run(_ask_both_ways(generator, guard, ScriptedJudge(words=words)))
    assert fold_answer(frames) == remove_times(answer)
    if answer.get("finish_reason") == "broken":
        assert frames[-1][0] == "run_failed"
        assert frames[-1][1]["detail"] == "the endpoint is away"
        assert chunks[-1][1]["error"]["message"] == "the endpoint is away"
    assert fold_chat(chunks) == remove_chat_times(completion)


def fold_answer(frames: Frames) -> dict[str, Any]:
    """Builds the answer from the events, as a client does."""
    body: dict[str, Any] = {
        "answer": "",
        "citations": {},
        "grounding": UNCHECKED,
        "degraded": [],
        "degraded_reasons": {},
        "clarification": None,
    }
    for name, data in frames:
        match name:
            case "run_started":
                body |= {key: data[key] for key in ("conversation_id", "pipeline_version")}
                body["standalone_question"] = data["question"]
            case "text_delta":
                body["answer"] += data["text"]
            case "citation_added":
                body["citations"][data["citation"]["id"]] = data["citation"]
            case "text_retracted":
                body |= {"answer": "", "citations": {}}
            case "grounding" | "clarification":
                body[name] = data
            case "degraded":
                body["degraded"].append(data["component"])
                body["degraded_reasons"][data["component"]] = data["reason"]
            case "run_finished":
                body |= {key: data[key] for key in ("finish_reason", "confidence", "coverage")}
            case "run_failed" if "finish_reason" not in body:
                return remove_times(data)
    return {**body, "citations": [_add_verdict(citation, body["grounding"]) for citation in body["citations"].values()]}


def _add_verdict(citation: dict[str, Any], grounding: dict[str, Any]) -> dict[str, Any]:
    """Adds the verdict of the first claim that overlaps the citation's claim."""
    start, end = citation["claim"]["start"], citation["claim"]["end"]
    over = [claim["verdict"] for claim in grounding["claims"] if claim["start"] < end and start < claim["end"]]
    return {**citation, "verdict": over[0]} if over else citation


def fold_chat(chunks: Frames) -> dict[str, Any]:
    message: dict[str, Any] = {"content": "", "finish_reason": None}
    for _, chunk in chunks:
        if "error" in chunk:
            return _without_times(message) if message["finish_reason"] else {"error": chunk["error"]}
        for choice in chunk["choices"]:
            delta = choice["delta"]
            message |= {**delta, "content": message["content"] + delta.get("content", "")}
            message["finish_reason"] = choice["finish_reason"]
    return _without_times(message)


def remove_times(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in OWN}


OWN = ("id", "object", "timings_ms", "usage", "correlation_id")
"""Keys that differ in each response, or that a stream does not have."""


def remove_chat_times(body: dict[str, Any]) -> dict[str, Any]:
    if "error" in body:
        return {"error": body["error"]}
    (choice,) = body["choices"]
    message = {key: value for key, value in choice["message"].items() if key != "refusal"}
    return _without_times({**message, "finish_reason": choice["finish_reason"]})


def _without_times(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "rag": {key: value for key, value in message["rag"].items() if key != "timings_ms"}}


async def _ask_both_ways(
    generator: ScriptedGenerator, guard: tuple[str, str], judge: ScriptedJudge
) -> tuple[dict[str, Any], Frames, dict[str, Any], Frames]:
    app = build_fastapi(ServedProfiles(scripted_graph(ScriptedRetriever(hits=HITS), generator, guard, judge)))
    question: dict[str, Any] = {"question": "How often?"}
    chat: dict[str, Any] = {"model": "default", "messages": [{"role": "user", "content": "How often?"}]}
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:

        async def post(path: str, body: dict[str, Any]) -> httpx2.Response:
            return await client.post(path, json=body)

        return (
            (await post("/v1/answer", question)).json(),
            _frames((await post("/v1/answer", {**question, "stream": True})).text),
            (await post("/v1/chat/completions", chat)).json(),
            _frames((await post("/v1/chat/completions", {**chat, "stream": True})).text),
        )


def _frames(text: str) -> Frames:
    if text.startswith("{"):  # it failed before it began
        return [("", json.loads(text))]
    parts = [dict(line.split(": ", 1) for line in frame.split("\n")) for frame in text.strip().split("\n\n")]
    return [(part.get("event", ""), json.loads(part["data"])) for part in parts if part["data"] != "[DONE]"]
