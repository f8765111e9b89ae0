"""Replies and their events as OpenAI chat completions.

This format cannot retract content, so text that the guard can retract is sent only when the answer is complete.
Indices count code points of the content; an end index is exclusive.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rag_core.answering.citing.citation_notes import sanitize_title
from rag_core.answering.citing.links import url_host
from rag_core.config import GuardSettings
from rag_core.events import Event, Sources, TextDelta
from rag_core.types import Citation, Finish, Reply
from rag_core.wire import citations_json, count_tokens, source_json, stage_rows, verdict_json
from serve.bodies.chat import CitationForm
from serve.http.responses import public_stages, timings_ms

FINISH_REASONS: dict[Finish, str] = {
    "stop": "stop",
    "abstained": "stop",
    "cut": "length",
    "broken": "length",
    "blocked": "content_filter",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The values that all parts of one completion share, and the client's options for it.

    `created` is in Unix seconds. `hold_text`: the text is sent when the answer is complete.
    """

    id: str
    created: int
    model: str
    pipeline_version: str
    citations: CitationForm = "annotations"
    explain: bool = False
    usage: bool = False
    hold_text: bool = False


def can_retract(guard: GuardSettings) -> bool:
    """True if the guard can retract text that has already been streamed."""
    return guard.stream == "after" and guard.mode in ("block", "regenerate")


def completion_json(reply: Reply, envelope: Envelope, now: datetime) -> dict[str, Any]:
    message = {
        "role": "assistant",
        "content": reply.answer.text + _markdown_sources(reply, envelope),
        "refusal": None,
        **_closing_members(reply, envelope, now),
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": FINISH_REASONS[reply.answer.finish]}
    return {**_common_members("chat.completion", envelope), "choices": [choice], "usage": completion_usage(reply)}


def event_chunks(event: Event, envelope: Envelope) -> Iterator[dict[str, Any]]:
    """Yields the chunks for an event, before the answer is complete. The sources precede all text."""
    match event:
        case Sources(passages):
            yield _chunk(envelope, {"role": "assistant", "content": ""})
            yield _chunk(envelope, {"rag": {"sources": [source_json(passage) for passage in passages]}})
        case TextDelta(text) if not envelope.hold_text:
            yield _chunk(envelope, {"content": text})


def closing_chunks(reply: Reply, envelope: Envelope, now: datetime) -> Iterator[dict[str, Any]]:
    """Yields the chunks of a complete reply that `event_chunks` has not yielded."""
    held_text = reply.answer.text if envelope.hold_text else ""
    if content := held_text + _markdown_sources(reply, envelope):
        yield _chunk(envelope, {"content": content})
    yield _chunk(envelope, _closing_members(reply, envelope, now))
    yield _chunk(envelope, {}, FINISH_REASONS[reply.answer.finish])
    if envelope.usage:
        yield {**_common_members("chat.completion.chunk", envelope), "choices": [], "usage": completion_usage(reply)}


def completion_usage(reply: Reply) -> dict[str, Any]:
    prompt, completed, cached = count_tokens(reply)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completed,
        "total_tokens": prompt + completed,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def url_citations(citations: Sequence[Citation]) -> list[dict[str, Any]]:
    """One annotation per marker, in the order of the text."""
    markers = [(span, citation) for citation in citations for span in citation.spans]
    return [
        {
            "type": "url_citation",
            "url_citation": {"start_index": start, "end_index": end, "title": citation.title, "url": citation.uri},
        }
        for (start, end), citation in sorted(markers, key=lambda marker: marker[0])
    ]


def sources_block(citations: Sequence[Citation]) -> str:
    """A Markdown list for clients that do not show annotations: each number once, linked to its first citation."""
    first = {citation.n: citation for citation in reversed(citations)}
    lines = [f"- [{n}] {_markdown_link(first[n].title, first[n].uri)}" for n in sorted(first)]
    return "\n".join(("\n\n**Sources**\n", *lines)) if lines else ""


def _markdown_link(title: str, uri: str) -> str:
    """A link with an escaped title. Documents control both, so neither must add markup or link to another host."""
    host = url_host(uri)
    text = re.sub(r"([\\`*_\[\]<>!&~])", r"\\\1", sanitize_title(title or uri, {host}))
    return f"[{text}](<{uri}>)" if host else text


def _markdown_sources(reply: Reply, envelope: Envelope) -> str:
    return sources_block(reply.answer.citations) if envelope.citations == "markdown" else ""


def _closing_members(reply: Reply, envelope: Envelope, now: datetime) -> dict[str, Any]:
    """The members of a message that need the complete answer."""
    annotated = reply.answer.citations if envelope.citations == "annotations" else ()
    rag = {
        "citations": citations_json(reply.answer, now),
        "conversation_id": reply.query.session_id,
        "grounding": verdict_json(reply.answer.verdict),
        "degraded": list(reply.degraded),
        "pipeline_version": envelope.pipeline_version,
        "confidence": round(reply.answer.confidence, 4),
        "timings_ms": timings_ms(reply),
    }
    if envelope.explain:
        stages = stage_rows(public_stages(reply.stages))
        rag["explain"] = {"standalone_question": reply.standalone, "stages": stages}
    return {"annotations": url_citations(annotated), "rag": rag}


def _chunk(envelope: Envelope, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**_common_members("chat.completion.chunk", envelope), "choices": [choice]}


def _common_members(object_type: str, envelope: Envelope) -> dict[str, Any]:
    return {"id": envelope.id, "object": object_type, "created": envelope.created, "model": envelope.model}
