"""The shapes of OpenAI's protocol: chat completions, whole and streamed, models, and vector store search."""

from typing import Literal, TypeAlias
from uuid import UUID

from rag_core.wire.answer import Citation, Clarification, Source, Verdict
from rag_core.wire.shape import Milliseconds, Shape
from rag_core.wire.stages import Stage

FinishReason: TypeAlias = Literal["stop", "length", "content_filter"]


class UrlCitation(Shape):
    start_index: int
    end_index: int
    title: str
    url: str


class Annotation(Shape):
    type: Literal["url_citation"]
    url_citation: UrlCitation


class Explained(Shape):
    standalone_question: str
    stages: list[Stage]


class Rag(Shape):
    citations: list[Citation]
    clarification: Clarification | None
    conversation_id: str
    grounding: Verdict
    degraded: list[str]
    degraded_reasons: dict[str, str]
    pipeline_version: str
    confidence: float | None
    coverage: float
    timings_ms: Milliseconds
    explain: Explained | None = None


class Completed(Shape):
    role: Literal["assistant"]
    content: str
    refusal: None
    annotations: list[Annotation]
    rag: Rag


class Choice(Shape):
    index: int
    message: Completed
    logprobs: None
    finish_reason: FinishReason


class CachedTokens(Shape):
    cached_tokens: int


class CompletionTokens(Shape):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class Completion(Shape):
    """OpenAI's completion, with `rag` in its message."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionTokens


class RagSources(Shape):
    sources: list[Source]


class Delta(Shape):
    """A part of a message: a piece of its text, its sources, or the members that need the complete answer."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    annotations: list[Annotation] | None = None
    rag: RagSources | Rag | None = None


class ChunkChoice(Shape):
    index: int
    delta: Delta
    logprobs: None
    finish_reason: FinishReason | None


class CompletionChunk(Shape):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: CompletionTokens | None = None


class Model(Shape):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(Shape):
    object: Literal["list"]
    data: list[Model]


class TextPart(Shape):
    type: Literal["text"]
    text: str


class FoundFile(Shape):
    file_id: UUID
    filename: str
    score: float
    attributes: dict[str, str | float | bool]
    content: list[TextPart]


class SearchPage(Shape):
    object: Literal["vector_store.search_results.page"]
    search_query: list[str]
    data: list[FoundFile]
    has_more: Literal[False]
    next_page: None
