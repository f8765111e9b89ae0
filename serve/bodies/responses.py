"""The response bodies, as `/openapi.json` lists them. Other modules write the bodies; tests compare the two."""

from datetime import datetime
from typing import Literal, TypeAlias
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from rag_core.types import DocumentStatus

Metadata: TypeAlias = dict[str, str | int | float | bool | list[str]]
Milliseconds: TypeAlias = dict[str, float]
"""Durations by stage, and their `total`."""


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class BrokenRule(Body):
    pointer: str = Field(description="the position in the body, as a JSON pointer (RFC 6901)", examples=["#/top_k"])
    code: str
    detail: str


class OpenAIError(Body):
    message: str
    type: str
    code: str
    param: str | None


class Span(Body):
    """A half-open span in code points."""

    start: int
    end: int


class Profile(Body):
    name: str
    selected_by: Literal["explicit", "detected", "default"]


class Step(Body):
    rank: int | None
    score: float


class Hit(Body):
    rank: int
    chunk_id: UUID
    document_id: UUID
    text: str
    title: str
    url: str
    page: int | None
    section: str | None
    start: int
    end: int
    score: float
    retrievers: list[str]
    highlights: list[tuple[int, int]]
    metadata: Metadata
    explain: dict[str, Step] | None = Field(None, description="by step, if requested")


class Stage(Body):
    """`began_ms` counts from the start of the request."""

    stage: str
    parent: str
    began_ms: float
    ms: float
    limit_ms: float | None
    error: str
    skipped: str
    figures: dict[str, float]
    ranked: int


class Retrieval(Body):
    id: str
    object: Literal["retrieval"]
    query: str
    standalone_query: str
    results: list[Hit]
    profile: Profile
    pipeline_version: str
    partial: bool
    degraded: list[str] = Field(description="stages that failed or timed out, and were skipped")
    timings_ms: Milliseconds
    stages: list[Stage] | None = Field(None, description="if requested")
    next_cursor: str | None


class Problem(Body):
    """A problem as in RFC 9457, with the member `error` that OpenAI clients read."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    correlation_id: UUID
    error_type: str
    retryable: bool
    recovery: list[str]
    failed_stage: str | None = None
    errors: list[BrokenRule] | None = None
    degraded: list[str] | None = None
    partial_results: list[Hit] | None = Field(None, description="the hits that were found before the timeout")
    error: OpenAIError


class Citation(Body):
    """A citation. `start` and `end` are offsets in the document's text, `spans` and `claim` in the answer."""

    n: int
    id: str
    source_type: Literal["corpus"]
    chunk_id: UUID
    document_id: UUID
    collection: str
    title: str
    url: str
    origin_url: str
    page: int | None
    section: str | None
    start: int
    end: int
    quote: str
    spans: list[Span]
    claim: Span
    score: float
    verdict: Literal["supported", "partial", "unsupported", "unchecked"]
    updated_at: datetime | None
    age_days: int | None


class Claim(Span):
    verdict: Literal["supported", "partial", "unsupported", "unchecked"]
    score: float
    reason: str


class Verdict(Body):
    verdict: Literal["supported", "partial", "unsupported", "unchecked"]
    score: float
    method: str
    claims: list[Claim]


class Tokens(Body):
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    total_tokens: int


class Answered(Body):
    id: str
    object: Literal["answer"]
    answer: str
    citations: list[Citation]
    confidence: float
    finish_reason: Literal["stop", "abstained", "cut", "broken", "blocked"]
    grounding: Verdict
    standalone_question: str
    conversation_id: str
    pipeline_version: str
    degraded: list[str]
    timings_ms: Milliseconds
    usage: Tokens


class UrlCitation(Body):
    start_index: int
    end_index: int
    title: str
    url: str


class Annotation(Body):
    type: Literal["url_citation"]
    url_citation: UrlCitation


class Explained(Body):
    standalone_question: str
    stages: list[Stage]


class Rag(Body):
    citations: list[Citation]
    conversation_id: str
    grounding: Verdict
    degraded: list[str]
    pipeline_version: str
    confidence: float
    timings_ms: Milliseconds
    explain: Explained | None = None


class Completed(Body):
    role: Literal["assistant"]
    content: str
    refusal: None
    annotations: list[Annotation]
    rag: Rag


class Choice(Body):
    index: int
    message: Completed
    logprobs: None
    finish_reason: Literal["stop", "length", "content_filter"]


class CachedTokens(Body):
    cached_tokens: int


class CompletionTokens(Body):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class Completion(Body):
    """OpenAI's completion, with `rag` in its message."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionTokens


class Model(Body):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(Body):
    object: Literal["list"]
    data: list[Model]


class TextPart(Body):
    type: Literal["text"]
    text: str


class FoundFile(Body):
    file_id: UUID
    filename: str
    score: float
    attributes: dict[str, str | float | bool]
    content: list[TextPart]


class SearchPage(Body):
    object: Literal["vector_store.search_results.page"]
    search_query: list[str]
    data: list[FoundFile]
    has_more: Literal[False]
    next_page: None


class Document(Body):
    id: UUID
    uri: str
    title: str
    status: DocumentStatus
    chunks: int
    version: int
    updated_at: datetime | None
    metadata: Metadata


class ShownDocument(Document):
    """A document. `stage` and `reason` describe its failure."""

    collection: str
    stage: str | None
    reason: str | None


class Chunk(Body):
    """A chunk. `start` and `end` are offsets in the document's text."""

    id: UUID
    ordinal: int
    start: int
    end: int
    prefix: str
    text: str
    metadata: Metadata


class Collection(Body):
    """A collection. `model` and `dimension` are null until something is embedded."""

    name: str
    model: str | None
    dimension: int | None
    documents: int
    chunks: int


class ServedProfile(Body):
    name: str
    serving: bool


class Listed(Body):
    next_cursor: str | None
    has_more: bool


class Documents(Listed):
    data: list[Document]


class Chunks(Listed):
    data: list[Chunk]


class Collections(Listed):
    data: list[Collection]


class Profiles(Listed):
    data: list[ServedProfile]


class Quoted(Body):
    """A span of a document's text as `quote`, with the text `before` and `after` it."""

    chunk_id: UUID
    document_id: UUID
    collection: str
    title: str
    url: str
    language: str
    updated_at: datetime | None
    page: int | None
    section: str | None
    start: int
    end: int
    before: str
    quote: str
    after: str
