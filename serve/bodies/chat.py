"""OpenAI's bodies, as far as they can be honoured here; what cannot be is refused by its name."""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    TypeAdapter,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict

from serve.bodies.requests import ConversationId, Filters, Question, Text, few_members
from serve.variants import AnswerOptions, GuardMode

IGNORED = frozenset(
    {
        *("temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "logit_bias", "user"),
        *("presence_penalty", "frequency_penalty", "reasoning_effort", "verbosity", "parallel_tool_calls"),
        *("metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier"),
    }
)
"""How to write is the profile's to say: these have no effect."""

DEFAULTS: Mapping[str, object] = {
    "n": 1,
    "logprobs": False,
    "modalities": ["text"],
    "response_format": {"type": "text"},
    "tools": [],
    "tool_choice": "none",
}
"""The only values that these may have."""

MOST_MESSAGES = 2_000
LONGEST_MESSAGE = 32_000
"""Characters."""
LONGEST_SHOWN = 80

CitationForm: TypeAlias = Literal["annotations", "markdown", "none"]

_question: TypeAdapter[str] = TypeAdapter(Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)])


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    _few_members = few_members


class Part(BaseModel):
    model_config = ConfigDict(frozen=True)

    type: str
    text: str = ""


_parts: TypeAdapter[list[Part]] = TypeAdapter(Annotated[list[Part], Field(fail_fast=True)])


def _joined(content: object) -> object:
    """The text of a content's parts."""
    if not isinstance(content, list):
        return content
    parts = _parts.validate_python(content)
    if strange := {part.type for part in parts} - {"text"}:
        shown = ", ".join(sorted(strange))[:LONGEST_SHOWN]
        raise ValueError(f"the parts of a content must be of type text, got {shown}")
    return "".join(part.text for part in parts)


class ChatMessage(BaseModel):
    """May carry whatever an answer has, as clients send answers back. A system's is not read: how to answer is the
    profile's to say."""

    model_config = ConfigDict(frozen=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[Text, Field(max_length=LONGEST_MESSAGE), BeforeValidator(_joined)]


class StreamOptions(BaseModel):
    model_config = ConfigDict(frozen=True)

    include_usage: StrictBool = False


class RagOptions(Strict):
    """`collection` and `profile` count before those in the model's name."""

    collection: Text = ""
    profile: Text = ""
    filters: Filters | None = None
    conversation_id: ConversationId = ""
    explain: StrictBool = False
    citations: CitationForm = "annotations"
    top_k: StrictInt | None = Field(
        None, ge=1, le=100, description="passages that the answer is written from, at the most"
    )
    guard: GuardMode | None = Field(None, description="what is done with what the sources do not support")

    @property
    def options(self) -> AnswerOptions:
        return AnswerOptions(top_k=self.top_k or 0, guard=self.guard)


EXAMPLE: JsonDict = {
    "model": "default",
    "messages": [{"role": "user", "content": "How often are the signing keys replaced?"}],
    "stream": False,
}


class Chat(Strict):
    """`model` is `collection` or `collection:profile`, of a profile that there is."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    model: Annotated[Text, Field(min_length=1)]
    messages: Annotated[tuple[ChatMessage, ...], Field(max_length=MOST_MESSAGES, fail_fast=True)]
    stream: StrictBool | None = False
    stream_options: StreamOptions | None = None
    rag: RagOptions = RagOptions()

    @model_validator(mode="before")
    @classmethod
    def _without_what_has_no_effect(cls, body: object) -> object:
        if not isinstance(body, Mapping):
            return body
        return {key: value for key, value in body.items() if not _harmless(key, value)}

    @field_validator("messages")
    @classmethod
    def _ask_something(cls, messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
        """Ends with the question: what follows the user's last message was not said in reply to it."""
        last = max((place for place, message in enumerate(messages) if message.role == "user"), default=-1)
        if last < 0:
            raise ValueError("one message must be the user's")
        question = _question.validate_python(messages[last].content)
        return (*messages[:last], messages[last].model_copy(update={"content": question}))


def _harmless(key: object, value: object) -> bool:
    return key in IGNORED or (key in DEFAULTS and value in (None, DEFAULTS[str(key)]))


class RankingOptions(Strict):
    """Scores are the profile's: a threshold means something within one profile only."""

    ranker: Literal["auto", "default-2024-11-15"] = "auto"
    score_threshold: float | None = None


def _only(query: object) -> object:
    """OpenAI's may be a list."""
    if isinstance(query, list) and len(query) != 1:
        raise ValueError(f"query must be one question, got {len(query)}")
    return query[0] if isinstance(query, list) else query


class Search(Strict):
    """`max_num_results` counts passages, of which a file may have several."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "signing keys", "max_num_results": 3}]})

    query: Annotated[Question, BeforeValidator(_only)]
    filters: Filters | None = None
    max_num_results: StrictInt = Field(10, ge=1, le=50)
    ranking_options: RankingOptions | None = None
    rewrite_query: Literal[False] = False
