"""The request body of `/v1/feedback`. It is strict: an unknown key is an error."""

import json
from hashlib import sha256
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rag_core.errors import UsageError
from rag_core.storage.replies import Feedback, Signal
from serve.bodies.fields import Text, limit_members

MAX_ANSWER_ID_CHARS = 200
MAX_COMMENT_CHARS = 4_000
MAX_ANSWER_CHARS = 20_000
MAX_SIGNALS = 16


class FeedbackBody(BaseModel):
    """A reader's opinion of one answer. At least one member besides `answer_id` must not be empty."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        json_schema_extra={"examples": [{"answer_id": "ans_0123", "rating": -1, "comment": "outdated"}]},
    )
    _limit_members = limit_members

    answer_id: Annotated[Text, Field(min_length=1, max_length=MAX_ANSWER_ID_CHARS)] = Field(
        description="the `id` of an answer or a chat completion, or the `run_id` of a stream"
    )
    rating: int | None = Field(None, ge=-1, le=1, description="-1 for thumbs down, 1 for thumbs up, 0 for neither")
    stars: int | None = Field(None, ge=1, le=5)
    comment: Annotated[Text, Field(max_length=MAX_COMMENT_CHARS)] = ""
    corrected_answer: Annotated[Text, Field(max_length=MAX_ANSWER_CHARS)] = ""
    signals: list[Signal] = Field([], max_length=MAX_SIGNALS, description="what the reader did with the answer")

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        try:
            self.feedback  # noqa: B018 - it checks itself
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def feedback(self) -> Feedback:
        return Feedback(**{**self.model_dump(), "signals": tuple(dict.fromkeys(self.signals))})

    @property
    def fingerprint(self) -> str:
        """Equal for equal requests, even if the order of their members differs."""
        return sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()
