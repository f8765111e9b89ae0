"""What OpenAI-compatible endpoints are sent, and what they send, as far as it is read: chunks, whole answers, and
their several errors."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError, model_validator
from pydantic_core import from_json

from rag_core.events import Usage

B = TypeVar("B", bound=BaseModel)

STREAMED: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
"""Of a request that wants its answer in chunks, the last one with the usage."""
DONE = "[DONE]"
"""Ends a stream."""

_ALTERNATIVES = 20
_REASON_LENGTH, _QUOTE_LENGTH = 300, 32
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


def answer_form(schema: Mapping[str, Any] | None, logprobs: bool) -> dict[str, Any]:
    """Of a request: that its answer is JSON of a schema, and that alternatives are told of each token."""
    form: dict[str, Any] = {}
    if schema is not None:
        named = {"name": "answer", "schema": dict(schema), "strict": True}
        form["response_format"] = {"type": "json_schema", "json_schema": named}
    return form | ({"logprobs": True, "top_logprobs": _ALTERNATIVES} if logprobs else {})


def unquoted(reason: str, messages: Sequence[Mapping[str, str]]) -> str:
    """Its first line, at most 300 characters, unless it quotes what was asked."""
    line = reason.strip().partition("\n")[0]
    starts = range(len(line) - _QUOTE_LENGTH + 1)[:_REASON_LENGTH]
    if any(line[start : start + _QUOTE_LENGTH] in each["content"] for start in starts for each in messages):
        return "a reason that quotes the prompt"
    return line[:_REASON_LENGTH]


class _Cached(BaseModel):
    cached_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Cached | None = None


class _Said(BaseModel):
    content: str | None = None


class _ChunkChoice(BaseModel):
    delta: _Said | None = None
    finish_reason: str | None = None


class Chunk(BaseModel):
    """The one with the usage has no choices, which some endpoints write as null, or not at all."""

    choices: list[_ChunkChoice] | None = None
    usage: _Usage | None = None

    @model_validator(mode="after")
    def _with_one_of_both(self) -> Self:
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
    def told_usage(self) -> Usage | None:
        if self.usage is None:
            return None
        details = self.usage.prompt_tokens_details
        cached = details.cached_tokens if details else 0
        return Usage(self.usage.prompt_tokens or 0, self.usage.completion_tokens or 0, cached or 0)


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
    message: _Said
    logprobs: _Logprobs | None = None


class Whole(BaseModel):
    choices: list[_Choice]

    @property
    def text(self) -> str:
        return self.choices[0].message.content or "" if self.choices else ""

    @property
    def alternatives(self) -> tuple[Mapping[str, float], ...]:
        given = self.choices[0].logprobs if self.choices else None
        tokens = (given.content if given else None) or []
        return tuple(token.alternatives for token in tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """`status` is 0 where none was told; `named` if the body says that it is an error."""

    status: int
    reason: str
    named: bool


def understood(form: type[B], body: str | bytes) -> B | Failure | None:
    """None if it is neither of that form nor an error."""
    text = _mended(_decoded(body))
    if (told := failure(text)).named:
        return told
    try:
        return form.model_validate_json(text)
    except ValidationError:
        return None


def _mended(text: str) -> str:
    """JSON where half a surrogate pair, as tokens that end within a character leave it, is U+FFFD."""
    return _ESCAPE.sub(lambda escape: r"\ufffd" if escape["half"] else escape[0], text)


def _decoded(body: str | bytes) -> str:
    return body if isinstance(body, str) else body.decode(errors="replace")


def failure(body: str | bytes, status: int = 0) -> Failure:
    """Reads `{"error": {"message": ...}}` as OpenAI and vLLM have it, `{"error": "..."}` as Ollama,
    `{"object": "error", "message": ...}` as older vLLM, and `{"detail": ...}` as web frameworks; or the plain text."""
    try:
        told = from_json(body)
    except ValueError:
        return Failure(status=_refusal(status), reason=_decoded(body), named=False)
    if not isinstance(told, dict):
        return Failure(status=_refusal(status), reason="", named=False)
    named = bool(told.get("error")) or told.get("object") == "error"
    inner = told["error"] if isinstance(told.get("error"), dict) else told
    return Failure(status=_refusal(status) or _code(inner), reason=_reason(inner), named=named)


def _refusal(status: int) -> int:
    return 0 if status == 200 else status


def _code(told: Mapping[str, Any]) -> int:
    code = told.get("code", told.get("status"))
    return code if isinstance(code, int) else 0


def _reason(told: Mapping[str, Any]) -> str:
    found = (told.get(key) for key in ("message", "error", "detail"))
    return next((str(each) for each in found if each), "")
