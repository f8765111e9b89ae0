"""Replies and their events as OpenAI chat completions.

This format cannot retract content, so text that the guard can retract is sent only when the answer is complete.
Indices count code points of the content; an end index is exclusive.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rag_core.answering.citing.citation_notes import sanitize_title
from rag_core.answering.citing.links import url_host
from rag_core.config import GuardSettings
from rag_core.events import Event, Sources, TextDelta
from rag_core.types import Citation, Finish, Reply
from rag_core.wire import openai as wire
from rag_core.wire.answer import Source, count_tokens, describe_reply
from rag_core.wire.stages import describe_stages
from serve.bodies.chat import CitationForm
from serve.http.responses import public_stages

FINISH_REASONS: dict[Finish, wire.FinishReason] = {
    "stop": "stop",
    "passages": "stop",
    "abstained": "stop",
    "cut": "length",
    "broken": "length",
    "blocked": "content_filter",
    "clarification": "stop",
    "conversational": "stop",
    "repeated": "stop",
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


def describe_completion(reply: Reply, envelope: Envelope, now: datetime) -> wire.Completion:
    message = wire.Completed(
        role="assistant",
        content=reply.answer.text + _markdown_sources(reply, envelope),
        refusal=None,
        annotations=_annotations(reply, envelope),
        rag=_describe_rag(reply, envelope, now),
    )
    finish = FINISH_REASONS[reply.answer.finish]
    return wire.Completion(
        id=envelope.id,
        object="chat.completion",
        created=envelope.created,
        model=envelope.model,
        choices=[wire.Choice(index=0, message=message, logprobs=None, finish_reason=finish)],
        usage=completion_usage(reply),
    )


def event_chunks(event: Event, envelope: Envelope) -> Iterator[wire.CompletionChunk]:
    """Yields the chunks for an event, before the answer is complete. The sources precede all text."""
    match event:
        case Sources(passages):
            yield _chunk(envelope, wire.Delta(role="assistant", content=""))
            sources = wire.RagSources(sources=[Source.describe(passage) for passage in passages])
            yield _chunk(envelope, wire.Delta(rag=sources))
        case TextDelta(text) if not envelope.hold_text:
            yield _chunk(envelope, wire.Delta(content=text))


def closing_chunks(reply: Reply, envelope: Envelope, now: datetime) -> Iterator[wire.CompletionChunk]:
    """Yields the chunks of a complete reply that `event_chunks` has not yielded."""
    held_text = reply.answer.text if envelope.hold_text else ""
    if content := held_text + _markdown_sources(reply, envelope):
        yield _chunk(envelope, wire.Delta(content=content))
    closing = wire.Delta(annotations=_annotations(reply, envelope), rag=_describe_rag(reply, envelope, now))
    yield _chunk(envelope, closing)
    yield _chunk(envelope, wire.Delta(), FINISH_REASONS[reply.answer.finish])
    if envelope.usage:
        yield _chunk_of(envelope, []).model_copy(update={"usage": completion_usage(reply)})


def completion_usage(reply: Reply) -> wire.CompletionTokens:
    usage = count_tokens(reply)
    return wire.CompletionTokens(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details=wire.CachedTokens(cached_tokens=usage.cached_tokens),
    )


def url_citations(citations: Sequence[Citation]) -> list[wire.Annotation]:
    """One annotation per marker, in the order of the text."""
    markers = [(span, citation) for citation in citations for span in citation.spans]
    return [
        wire.Annotation(
            type="url_citation",
            url_citation=wire.UrlCitation(start_index=start, end_index=end, title=citation.title, url=citation.uri),
        )
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


def _annotations(reply: Reply, envelope: Envelope) -> list[wire.Annotation]:
    return url_citations(reply.answer.citations if envelope.citations == "annotations" else ())


def _describe_rag(reply: Reply, envelope: Envelope, now: datetime) -> wire.Rag:
    reply = replace(reply, stages=tuple(public_stages(reply.stages)))
    rag = wire.Rag(**describe_reply(reply, envelope.pipeline_version, now))
    if not envelope.explain:
        return rag
    stages = describe_stages(reply.stages)
    return rag.model_copy(update={"explain": wire.Explained(standalone_question=reply.standalone, stages=stages)})


def _chunk(envelope: Envelope, delta: wire.Delta, finish: wire.FinishReason | None = None) -> wire.CompletionChunk:
    return _chunk_of(envelope, [wire.ChunkChoice(index=0, delta=delta, logprobs=None, finish_reason=finish)])


def _chunk_of(envelope: Envelope, choices: list[wire.ChunkChoice]) -> wire.CompletionChunk:
    return wire.CompletionChunk(
        id=envelope.id,
        object="chat.completion.chunk",
        created=envelope.created,
        model=envelope.model,
        choices=choices,
    )
