"""What requests may say: strict, so that an unknown key is an error and not a surprise."""

from collections.abc import Mapping
from math import inf
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rag_core.types import DEFAULT_COLLECTION, UNSTORABLE
from serve.graph import LONGEST_QUERY
from serve.variants import AnswerOptions, FusionMethod, GuardMode, SearchOptions

MOST_NESTED = 16
"""Levels of a filter."""

MOST_CONDITIONS = 256
"""Of a filter: each is a query of its own to plan, and 29,000, which a body could hold, take seconds to write down."""

MOST_PARTS = 10_000
"""Of a filter: objects, lists, keys and values together."""

MOST_MEMBERS = 1_000
"""Of an object: each that is unknown is a broken rule to be told of, and a body could hold 100,000."""

MOST_LEGS = 64
LONGEST_CONVERSATION_ID = 200


def _storable(text: str) -> str:
    if UNSTORABLE.search(text):
        raise ValueError("a text must not hold NUL or lone surrogates")
    return text


def _storable_filter(filters: dict[str, Any]) -> dict[str, Any]:
    """Before anything walks through it to its end."""
    level: list[object] = [filters]
    conditions = parts = 0
    for _ in range(2 * MOST_NESTED):  # an object and a list are one level
        conditions += sum(isinstance(each, Mapping) for each in level)
        if conditions > MOST_CONDITIONS:
            raise ValueError(f"a filter must have at most {MOST_CONDITIONS} conditions")
        level = [part for each in level for part in _parts(each)]
        parts += len(level)
        if parts > MOST_PARTS:
            raise ValueError(f"a filter must have at most {MOST_PARTS} keys and values")
        if not level:
            return filters
    raise ValueError(f"a filter must have at most {MOST_NESTED} levels")


def _parts(value: object) -> list[Any]:
    if isinstance(value, str):
        _storable(value)
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []


Text = Annotated[str, AfterValidator(_storable)]
Question = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_QUERY), AfterValidator(_storable)
]
Filters = Annotated[
    dict[str, Any],
    AfterValidator(_storable_filter),
    Field(examples=[{"type": "and", "filters": [{"key": "page", "type": "gte", "value": 5}]}]),
]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Strategies = Annotated[list[Text], Field(min_length=1, max_length=MOST_LEGS, fail_fast=True)]
Weights = Annotated[dict[Text, Weight], Field(min_length=1, max_length=MOST_LEGS, fail_fast=True)]
ConversationId = Annotated[Text, Field(max_length=LONGEST_CONVERSATION_ID)]


def _of_few_members(body: object) -> object:
    if isinstance(body, Mapping) and len(body) > MOST_MEMBERS:
        raise ValueError(f"an object must have at most {MOST_MEMBERS} members, got {len(body)}")
    return body


few_members = model_validator(mode="before")(_of_few_members)
"""For models that refuse unknown keys, each by its name."""


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    _few_members = few_members

    collection: Text = DEFAULT_COLLECTION
    profile: Text = Field("", description="only the one that is served here, as `/v1/profiles` shows it")
    filters: Filters | None = None
    timeout_ms: float | None = Field(None, ge=1, le=600_000, description="of all of it; the profile's own counts, too")


class Retrieve(Asked):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "How often are the signing keys replaced?", "top_k": 3}]}
    )

    query: Question
    strategies: Strategies | None = Field(None, description="of the profile's legs, those to ask")
    fusion_method: FusionMethod | None = Field(None, description="ltr only where the profile has it")
    weights: Weights | None = Field(
        None, description="by leg; one that is not named has 0. With weighted or distribution only"
    )
    top_k: int = Field(10, ge=1, le=100)
    candidates: int | None = Field(None, ge=1, le=1000, description="hits that the best top_k are chosen from")
    rerank: bool | None = Field(None, description="true only where the profile has a reranker")
    max_chunks_per_document: int | None = Field(None, ge=1, le=100)
    conversation_id: ConversationId = Field(
        "", description="no profile rewrites questions by it so far: see standalone_query"
    )
    on_timeout: Literal["partial", "error"] = Field(
        "partial", description="what was found in time as an answer that says so, or with a problem"
    )
    explain: bool = False
    cursor: Text = Field("", description="the next_cursor of the page before; all else but top_k as it was asked then")

    @field_validator("candidates")
    @classmethod
    def _enough_to_choose_from(cls, candidates: int | None, others: ValidationInfo) -> int | None:
        if candidates is not None and candidates < others.data.get("top_k", 0):
            raise ValueError(f"candidates must be >= top_k, got {candidates} for {others.data['top_k']}")
        return candidates

    @field_validator("weights")
    @classmethod
    def _weigh_something(cls, weights: Mapping[str, float] | None) -> Mapping[str, float] | None:
        if weights is not None and not 0 < sum(weights.values()) < inf:
            raise ValueError("one weight must be above 0, and their sum finite")
        return weights

    @property
    def options(self) -> SearchOptions:
        return SearchOptions(
            strategies=tuple(sorted(set(self.strategies or ()))),
            fusion_method=self.fusion_method,
            weights=tuple(sorted((self.weights or {}).items())),
            candidates=self.candidates or 0,
            rerank=self.rerank,
            max_chunks_per_document=self.max_chunks_per_document or 0,
        )


class Answer(Asked):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"question": "How often are the signing keys replaced?", "stream": False}]}
    )

    question: Question
    conversation_id: ConversationId = ""
    top_k: int | None = Field(None, ge=1, le=100, description="passages that the answer is written from, at the most")
    guard: GuardMode | None = Field(None, description="what is done with what the sources do not support")
    stream: bool = False

    @property
    def options(self) -> AnswerOptions:
        return AnswerOptions(top_k=self.top_k or 0, guard=self.guard)
