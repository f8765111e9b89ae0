"""OpenAI's request bodies for chat completions and vector store search. Unsupported members are rejected by name."""

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

from serve.bodies.fields import ConversationId, Filters, Question, Text, limit_members
from serve.bodies.requests import CONVERSATION_ALIASES, GUARD_DESCRIPTION
from serve.variants import AnswerOptions, GuardMode

IGNORED_MEMBERS = frozenset(
    {
        *("temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "logit_bias", "user"),
        *("presence_penalty", "frequency_penalty", "reasoning_effort", "verbosity", "parallel_tool_calls"),
        *("metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier"),
    }
)
"""Members without effect: the profile decides how answers are written."""

FIXED_MEMBERS: Mapping[str, object] = {
    "n": 1,
    "logprobs": False,
    "modalities": ["text"],
    "response_format": {"type": "text"},
    "tools": [],
    "tool_choice": "none",
}
"""Members that are accepted with these values only."""

MAX_MESSAGES = 2_000
MAX_MESSAGE_CHARS = 32_000
MAX_SHOWN_CHARS = 80

CitationForm: TypeAlias = Literal["annotations", "markdown", "none"]

_question: TypeAdapter[str] = TypeAdapter(Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)])


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    _limit_members = limit_members


class Part(BaseModel):
    model_config = ConfigDict(frozen=True)

    type: str
    text: str = ""


_parts: TypeAdapter[list[Part]] = TypeAdapter(Annotated[list[Part], Field(fail_fast=True)])


def _join_text_parts(content: object) -> object:
    if not isinstance(content, list):
        return content
    parts = _parts.validate_python(content)
    if unsupported := {part.type for part in parts} - {"text"}:
        names = ", ".join(sorted(unsupported))[:MAX_SHOWN_CHARS]
        raise ValueError(f"the parts of a content must be of type text, got {names}")
    return "".join(part.text for part in parts)


class ChatMessage(BaseModel):
    """A message. Unknown members are allowed, because clients send answers back unchanged. System messages are
    ignored: the profile decides how answers are written."""

    model_config = ConfigDict(frozen=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[Text, Field(max_length=MAX_MESSAGE_CHARS), BeforeValidator(_join_text_parts)]


class StreamOptions(BaseModel):
    model_config = ConfigDict(frozen=True)

    include_usage: StrictBool = False


class RagOptions(Strict):
    """The options of this gateway. `collection` and `profile` take precedence over those in the model's name."""

    collection: Text = ""
    profile: Text = ""
    filters: Filters | None = None
    conversation_id: ConversationId = Field("", validation_alias=CONVERSATION_ALIASES)
    explain: StrictBool = False
    citations: CitationForm = "annotations"
    top_k: StrictInt | None = Field(None, ge=1, le=100, description="the most passages that the answer is written from")
    guard: GuardMode | None = Field(None, description=GUARD_DESCRIPTION)

    @property
    def options(self) -> AnswerOptions:
        return AnswerOptions(top_k=self.top_k or 0, guard=self.guard)


EXAMPLE: JsonDict = {
    "model": "default",
    "messages": [{"role": "user", "content": "How often are the signing keys replaced?"}],
    "stream": False,
}


class Chat(Strict):
    """The body of a request for a chat completion.

    `model` is `collection` or `collection:profile`, with a served profile.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    model: Annotated[Text, Field(min_length=1)]
    messages: Annotated[tuple[ChatMessage, ...], Field(max_length=MAX_MESSAGES, fail_fast=True)]
    stream: StrictBool | None = False
    stream_options: StreamOptions | None = None
    rag: RagOptions = RagOptions()

    @model_validator(mode="before")
    @classmethod
    def _drop_ignored_members(cls, body: object) -> object:
        """Drops ignored members, and those of `FIXED_MEMBERS` that are null or have the only supported value."""
        if not isinstance(body, Mapping):
            return body
        return {
            key: value
            for key, value in body.items()
            if key not in IGNORED_MEMBERS and not (key in FIXED_MEMBERS and value in (None, FIXED_MEMBERS[key]))
        }

    @field_validator("messages")
    @classmethod
    def _end_with_question(cls, messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
        """Drops the messages after the user's last message, which is the question."""
        last = max((index for index, message in enumerate(messages) if message.role == "user"), default=-1)
        if last < 0:
            raise ValueError("at least one message must have the role user")
        question = _question.validate_python(messages[last].content)
        return (*messages[:last], messages[last].model_copy(update={"content": question}))


class RankingOptions(Strict):
    """Scores depend on the profile, so a threshold is meaningful for one profile only."""

    ranker: Literal["auto", "default-2024-11-15"] = "auto"
    score_threshold: float | None = None


def _single_query(query: object) -> object:
    """The query. OpenAI also allows a list of queries; here such a list must have one element."""
    if isinstance(query, list) and len(query) != 1:
        raise ValueError(f"query must be a single question, got {len(query)}")
    return query[0] if isinstance(query, list) else query


class Search(Strict):
    """The body of a request for a search of a vector store. `max_num_results` counts hits; a file can have several."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "signing keys", "max_num_results": 3}]})

    query: Annotated[Question, BeforeValidator(_single_query)]
    filters: Filters | None = None
    max_num_results: StrictInt = Field(10, ge=1, le=50)
    ranking_options: RankingOptions | None = None
    rewrite_query: Literal[False] = False
