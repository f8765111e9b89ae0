"""The values of memory stores: sessions and their turns."""

from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

from pydantic import AwareDatetime, Field

from rag_core.config import Section


def _now() -> datetime:
    return datetime.now(UTC)


class Session(Section):
    """One conversation. `participants` are the names of those who took part."""

    id: str
    participants: tuple[str, ...] = ()
    started_at: AwareDatetime = Field(default_factory=_now)
    last_activity_at: AwareDatetime = Field(default_factory=_now)
    metadata: dict[str, Any] = Field({})


class Turn(Section):
    """One message of a conversation. `metadata` can hold its intent and entities."""

    id: str = Field(default_factory=lambda: str(uuid4()))
    session_id: str
    role: Literal["user", "assistant", "system"]
    content: str
    timestamp: AwareDatetime = Field(default_factory=_now)
    metadata: dict[str, Any] = Field({})


def find_participant(turn: Turn) -> str:
    """The name of the participant whose turn it is, or else the role."""
    return str(turn.metadata.get("participant", turn.role))
