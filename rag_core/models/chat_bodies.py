"""The requests to OpenAI-compatible endpoints and their responses, as far as they are used.

The responses are chunks of an answer, whole answers, and several forms of errors.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError, model_validator
from pydantic_core import from_json

from rag_core.events import Usage

B = TypeVar("B", bound=BaseModel)

STREAM_FIELDS: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
"""The fields of a request for an answer in chunks, the last of which has the usage."""

_ALTERNATIVES = 20
_MAX_REASON_LENGTH, _QUOTE_LENGTH = 300, 32
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


def answer_fields(schema: Mapping[str, Any] | None, logprobs: bool) -> dict[str, Any]:
    """The fields of a request for an answer in a JSON schema, and for the alternatives of each token."""
    fields: dict[str, Any] = {}
    if schema is not None:
        answer_schema = {"name": "answer", "schema": dict(schema), "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": answer_schema}
    return fields | ({"logprobs": True, "top_logprobs": _ALTERNATIVES} if logprobs else {})


def describe_refusal(failure: "EndpointFailure", messages: Sequence[Mapping[str, str]]) -> str:
    """The failure's status and reason, without quotes of the messages."""
    what = f"refused with {failure.status}" if failure.status else "broke off"
    return f"{what}: {redact_reason(failure.reason, messages)}" if failure.reason else what


def redact_reason(reason: str, messages: Sequence[Mapping[str, str]]) -> str:
    """The reason's first line, at most 300 characters; another text if it quotes 32 characters of a message."""
    line = reason.strip().partition("\n")[0]
    starts = range(len(line) - _QUOTE_LENGTH + 1)[:_MAX_REASON_LENGTH]
    if any(line[start : start + _QUOTE_LENGTH] in message["content"] for start in starts for message in messages):
        return "reason withheld, it quotes the prompt"
    return line[:_MAX_REASON_LENGTH]


class _PromptTokensDetails(BaseModel):
    cached_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptTokensDetails | None = None

    @property
    def tokens(self) -> Usage:
        details = self.prompt_tokens_details
        cached = details.cached_tokens if details else 0
        return Usage(self.prompt_tokens or 0, self.completion_tokens or 0, cached or 0)


class _Message(BaseModel):
    content: str | None = None


class _ChunkChoice(BaseModel):
    delta: _Message | None = None
    finish_reason: str | None = None


class CompletionChunk(BaseModel):
    """One chunk of an answer. The chunk with the usage has no choices: some endpoints send null, others omit them."""

    choices: list[_ChunkChoice] | None = None
    usage: _Usage | None = None

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if not {"choices", "usage"} & self.model_fields_set:
            raise ValueError("a chunk must have choices or usage")
        return self

    @property
    def text(self) -> str:
        return "".join(choice.delta.content or "" for choice in self.choices or () if choice.delta)

    @property
    def finish(self) -> str:
        return next((choice.finish_reason for choice in self.choices or () if choice.finish_reason), "")

    @property
    def token_usage(self) -> Usage | None:
        return self.usage.tokens if self.usage else None


class _Alternative(BaseModel):
    token: str
    logprob: float | None = None


class _Token(BaseModel):
    top_logprobs: list[_Alternative] | None = None

    @property
    def alternatives(self) -> Mapping[str, float]:
        return {other.token: other.logprob for other in self.top_logprobs or () if other.logprob is not None}


class _Logprobs(BaseModel):
    content: list[_Token] | None = None


class _Choice(BaseModel):
    message: _Message
    logprobs: _Logprobs | None = None


class CompletionBody(BaseModel):
    """The body of a whole answer."""

    choices: list[_Choice]
    usage: _Usage | None = None

    @property
    def token_usage(self) -> Usage | None:
        return self.usage.tokens if self.usage else None

    @property
    def text(self) -> str:
        return self.choices[0].message.content or "" if self.choices else ""

    @property
    def alternatives(self) -> tuple[Mapping[str, float], ...]:
        logprobs = self.choices[0].logprobs if self.choices else None
        tokens = (logprobs.content if logprobs else None) or []
        return tuple(token.alternatives for token in tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointFailure:
    """An error response. `status` is 0 if the endpoint sent none; `is_error` is true if the body is marked as one."""

    status: int
    reason: str
    is_error: bool


def parse_body(model: type[B], body: str) -> B | EndpointFailure | None:
    """Parses a response; returns None if it is neither a `model` nor an error."""
    # tokens that end within a character leave half a surrogate pair, which is not valid JSON
    text = _ESCAPE.sub(lambda escape: r"\ufffd" if escape["half"] else escape[0], body)
    if (failure := parse_failure(text)).is_error:
        return failure
    try:
        return model.model_validate_json(text)
    except ValidationError:
        return None


def parse_failure(body: str, status: int = 0) -> EndpointFailure:
    """Parses the body of an error response, in any of the common forms or plain text.

    OpenAI and vLLM send `{"error": {"message": ...}}`, Ollama `{"error": "..."}`, older vLLM
    `{"object": "error", "message": ...}`, and web frameworks `{"detail": ...}`.
    """
    status = 0 if status == 200 else status
    try:
        content = from_json(body)
    except ValueError:
        return EndpointFailure(status=status, reason=body, is_error=False)
    if not isinstance(content, dict):
        return EndpointFailure(status=status, reason="", is_error=False)
    details = content["error"] if isinstance(content.get("error"), dict) else content
    code = details.get("code", details.get("status"))
    reasons = (details.get(key) for key in ("message", "error", "detail"))
    return EndpointFailure(
        status=status or (code if isinstance(code, int) else 0),
        reason=next((str(reason) for reason in reasons if reason), ""),
        is_error=bool(content.get("error")) or content.get("object") == "error",
    )
