"""What requests may say: strict, so that an unknown key is an error and not a surprise."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from rag_core.types import DEFAULT_COLLECTION

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def _storable(text: str) -> str:
    if _UNSTORABLE.search(text):
        raise ValueError("a text must not hold NUL or lone surrogates")
    return text


Text = Annotated[str, AfterValidator(_storable)]
Question = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000), AfterValidator(_storable)
]


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    collection: Text = DEFAULT_COLLECTION
    filters: dict[str, Any] | None = None
    timeout_ms: float | None = Field(None, gt=0, le=600_000)


class Retrieve(Asked):
    query: Question
    top_k: int = Field(10, ge=1, le=100)
    explain: bool = False


class Answer(Asked):
    question: Question
    conversation_id: Text = ""
    stream: bool = False
