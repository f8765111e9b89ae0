"""The shape of a failed request."""

from uuid import UUID

from pydantic import Field

from rag_core.wire.retrieval import Hit
from rag_core.wire.shape import Shape


class BrokenRule(Shape):
    pointer: str = Field(description="the position in the body, as a JSON pointer (RFC 6901)", examples=["#/top_k"])
    code: str
    detail: str


class OpenAIError(Shape):
    message: str
    type: str
    code: str
    param: str | None


class Problem(Shape):
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
    error: OpenAIError
    degraded: list[str] | None = None
    partial_results: list[Hit] | None = Field(None, description="the hits that were found before the timeout")
