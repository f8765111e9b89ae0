"""The request bodies of `/v1/retrieve` and `/v1/answer`. They are strict: an unknown key is an error."""

from collections.abc import Mapping
from math import inf
from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from rag_core.types import DEFAULT_COLLECTION
from serve.bodies.fields import ConversationId, Filters, Question, Strategies, Text, Weights, limit_members
from serve.variants import AnswerOptions, FusionMethod, GuardMode, SearchOptions

GUARD_DESCRIPTION = (
    "the treatment of claims that the sources do not support; a weaker one than the profile's needs the scope "
    "`policy:override`"
)
CONVERSATION_ALIASES = AliasChoices("conversation_id", "session_id")


class SearchScope(BaseModel):
    """The members of every request that searches."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    _limit_members = limit_members

    collection: Text = DEFAULT_COLLECTION
    profile: Text = Field("", description="a served profile, as `/v1/profiles` lists them; if empty, the default one")
    filters: Filters | None = None
    timeout_ms: float | None = Field(
        None, ge=1, le=600_000, description="limit of the whole request; the profile's limit applies too"
    )


class Retrieve(SearchScope):
    """The body of a request for hits."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "How often are the signing keys replaced?", "top_k": 3}]}
    )

    query: Question = Field(validation_alias=AliasChoices("query", "text"))
    strategies: Strategies | None = Field(None, description="legs of the profile to search; all of them if omitted")
    fusion_method: FusionMethod | None = Field(None, description="ltr requires a profile with learned weights")
    weights: Weights | None = Field(
        None, description="by leg, 0 for a leg that is not named; requires weighted or distribution"
    )
    top_k: int = Field(10, ge=1, le=100)
    candidates: int | None = Field(None, ge=1, le=1000, description="hits that the best top_k are selected from")
    rerank: bool | None = Field(None, description="true requires a profile with a reranker")
    max_chunks_per_document: int | None = Field(None, ge=1, le=100)
    conversation_id: ConversationId = Field(
        "",
        validation_alias=CONVERSATION_ALIASES,
        description="interprets the query after the messages of this conversation, and stores nothing in it",
    )
    on_timeout: Literal["partial", "error"] = Field(
        "partial", description="after a timeout, return the hits so far as a partial result, or with a problem"
    )
    explain: bool = False
    cursor: Text = Field(
        "", description="the next_cursor of the previous page; all other members except top_k must be the same"
    )

    @field_validator("candidates")
    @classmethod
    def _check_candidates(cls, candidates: int | None, others: ValidationInfo) -> int | None:
        if candidates is not None and candidates < others.data.get("top_k", 0):
            raise ValueError(f"candidates must be >= top_k, got {candidates} for {others.data['top_k']}")
        return candidates

    @field_validator("weights")
    @classmethod
    def _check_weights(cls, weights: Mapping[str, float] | None) -> Mapping[str, float] | None:
        if weights is not None and not 0 < sum(weights.values()) < inf:
            raise ValueError("at least one weight must be above 0, and their sum must be finite")
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


class Answer(SearchScope):
    """The body of a request for an answer."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"question": "How often are the signing keys replaced?", "stream": False}]}
    )

    question: Question
    conversation_id: ConversationId = Field("", validation_alias=CONVERSATION_ALIASES)
    top_k: int | None = Field(None, ge=1, le=100, description="the most passages that the answer is written from")
    guard: GuardMode | None = Field(None, description=GUARD_DESCRIPTION)
    stream: bool = False

    @property
    def options(self) -> AnswerOptions:
        return AnswerOptions(top_k=self.top_k or 0, guard=self.guard)
