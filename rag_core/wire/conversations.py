"""The shapes of `/v1/conversations`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import Field

from rag_core import types
from rag_core.storage.conversations import read_sources
from rag_core.wire.answer import Citation
from rag_core.wire.shape import Page, Shape


class Conversation(Shape):
    id: str = Field(
        description="the `conversation_id` of its requests; `conversation:` and a UUID if another user opened it, or "
        "if an earlier version stored it"
    )
    title: str = Field(description="the beginning of the first question")
    started_at: datetime
    last_activity_at: datetime
    turns: int


class Conversations(Page):
    data: list[Conversation]


class Participants(Shape):
    id: str = Field(description="the `conversation_id` that participants send")
    users: list[str]


class Message(Shape):
    """A message of a conversation. The members after `created_at` are those of an answer."""

    id: str = Field(description="of an answer: the id that feedback names")
    role: Literal["user", "assistant", "system"]
    text: str
    created_at: datetime
    citations: list[Citation]
    verdict: types.Grade
    confidence: float | None

    @classmethod
    def describe(cls, row: Mapping[str, Any], now: datetime) -> Self:
        citations = enumerate(read_sources(row["sources"]), start=1)
        return cls.from_row({**row, "citations": [Citation.describe(n, citation, now) for n, citation in citations]})


class Messages(Page):
    data: list[Message]
