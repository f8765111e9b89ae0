"""A reply and its events in the shape of OpenAI's chat completions.

Content that was sent cannot be taken back in this shape: text that the guard may still retract is held until it cannot.
Indices count code points of the content, half open.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rag_core.answering.citing.citation_notes import plain
from rag_core.answering.citing.links import host_of
from rag_core.config import GuardSettings
from rag_core.events import Event, Sources, TextDelta
from rag_core.types import Citation, Finish, Reply
from rag_core.wire import citations_json, source_json, stage_rows, tokens, verdict_json
from serve.bodies.chat import CitationForm
from serve.http.responses import public_stages

FINISHES: dict[Finish, str] = {
    "stop": "stop",
    "abstained": "stop",
    "cut": "length",
    "broken": "length",
    "blocked": "content_filter",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What all parts of one completion share, and what its client wants to see. `created` is in Unix seconds; `held`
    is whether its text waits until it is whole."""

    id: str
    created: int
    model: str
    pipeline_version: str
    citations: CitationForm = "annotations"
    explain: bool = False
    usage: bool = False
    held: bool = False


def retractable(guard: GuardSettings) -> bool:
    """Whether what was told may have to be taken back."""
    return guard.stream == "after" and guard.mode in ("block", "regenerate")


def completion(reply: Reply, form: Form, now: datetime) -> dict[str, Any]:
    message = {
        "role": "assistant",
        "content": reply.answer.text + _appended(reply, form),
        "refusal": None,
        **_closing(reply, form, now),
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": FINISHES[reply.answer.finish]}
    return {**_envelope("chat.completion", form), "choices": [choice], "usage": usage(reply)}


def chunks(event: Event, form: Form) -> Iterator[dict[str, Any]]:
    """What is told before the end. The first are the sources, before any text."""
    match event:
        case Sources(passages):
            yield _chunk(form, {"role": "assistant", "content": ""})
            yield _chunk(form, {"rag": {"sources": [source_json(passage) for passage in passages]}})
        case TextDelta(text) if not form.held:
            yield _chunk(form, {"content": text})


def last_chunks(reply: Reply, form: Form, now: datetime) -> Iterator[dict[str, Any]]:
    """What remains to be told of a reply."""
    if rest := (reply.answer.text if form.held else "") + _appended(reply, form):
        yield _chunk(form, {"content": rest})
    yield _chunk(form, _closing(reply, form, now))
    yield _chunk(form, {}, FINISHES[reply.answer.finish])
    if form.usage:
        yield {**_envelope("chat.completion.chunk", form), "choices": [], "usage": usage(reply)}


def usage(reply: Reply) -> dict[str, Any]:
    prompt, completed, cached = tokens(reply)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completed,
        "total_tokens": prompt + completed,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def url_citations(citations: Sequence[Citation]) -> list[dict[str, Any]]:
    """One for each marker, in the order of the text."""
    places = [(span, citation) for citation in citations for span in citation.spans]
    ordered = sorted(places, key=lambda place: place[0])
    return [{"type": "url_citation", "url_citation": _url_citation(*place)} for place in ordered]


def sources_block(citations: Sequence[Citation]) -> str:
    """For clients that show no annotations: each number once, with what its first citation tells."""
    first = {citation.n: citation for citation in reversed(citations)}
    lines = [f"- [{n}] {_link(first[n].title, first[n].uri)}" for n in sorted(first)]
    return "\n".join(("\n\n**Sources**\n", *lines)) if lines else ""


def _appended(reply: Reply, form: Form) -> str:
    return sources_block(reply.answer.citations) if form.citations == "markdown" else ""


def _closing(reply: Reply, form: Form, now: datetime) -> dict[str, Any]:
    """What is known of an answer when it is whole."""
    shown = reply.answer.citations if form.citations == "annotations" else ()
    return {"annotations": url_citations(shown), "rag": _rag(reply, form, now)}


def _rag(reply: Reply, form: Form, now: datetime) -> dict[str, Any]:
    explained = {"standalone_question": reply.standalone, "stages": stage_rows(public_stages(reply.stages))}
    timings = {report.stage: round(1000 * report.seconds, 1) for report in reply.stages if not report.skipped}
    return {
        "citations": citations_json(reply.answer, now),
        "conversation_id": reply.query.session_id,
        "grounding": verdict_json(reply.answer.verdict),
        "degraded": list(reply.degraded),
        "pipeline_version": form.pipeline_version,
        "confidence": round(reply.answer.confidence, 4),
        "timings_ms": {**timings, "total": round(1000 * reply.seconds, 1)},
        **({"explain": explained} if form.explain else {}),
    }


def _url_citation(span: tuple[int, int], citation: Citation) -> dict[str, Any]:
    start, end = span
    return {"start_index": start, "end_index": end, "title": citation.title, "url": citation.uri}


def _chunk(form: Form, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**_envelope("chat.completion.chunk", form), "choices": [choice]}


def _envelope(kind: str, form: Form) -> dict[str, Any]:
    return {"id": form.id, "object": kind, "created": form.created, "model": form.model}


def _link(title: str, uri: str) -> str:
    """A document writes both itself: they must not be markup, nor lead anywhere but to its own host."""
    host = host_of(uri)
    shown = re.sub(r"([\\`*_\[\]<>!&~])", r"\\\1", plain(title or uri, {host}))
    return f"[{shown}](<{uri}>)" if host else shown
