"""The port of memory stores, which keep the turns of conversations, and a store in memory."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Protocol
from uuid import uuid4

from pydantic import AwareDatetime, Field

from rag_core.config import Section
from rag_core.conversation.in_memory import MAX_MESSAGES, MAX_SESSIONS


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


class BaseMemoryStore(Protocol):
    async def get_session(self, session_id: str) -> Session:
        """The session, which begins now if it is new."""
        ...

    async def save_turn(self, session_id: str, turn: Turn) -> None: ...

    async def get_history(self, session_id: str, limit: int) -> list[Turn]:
        """The last `limit` turns, oldest first."""
        ...


class InMemoryStore:
    """Sessions that end with the process. The least recently used ones are forgotten, and old turns of a long one."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._turns: dict[str, deque[Turn]] = {}

    async def get_session(self, session_id: str) -> Session:
        if session_id not in self._sessions:
            self._store_session(Session(id=session_id))
        return self._sessions[session_id]

    async def save_turn(self, session_id: str, turn: Turn) -> None:
        session = await self.get_session(session_id)
        participants = dict.fromkeys((*session.participants, str(turn.metadata.get("participant", turn.role))))
        changes = {"last_activity_at": turn.timestamp, "participants": tuple(participants)}
        self._store_session(session.model_copy(update=changes))
        self._turns.setdefault(session_id, deque(maxlen=MAX_MESSAGES)).append(turn)

    async def get_history(self, session_id: str, limit: int) -> list[Turn]:
        turns = list(self._turns.get(session_id, ()))
        return turns[max(0, len(turns) - limit) :]

    def list_sessions(self) -> list[Session]:
        """The sessions, the one with the latest activity last."""
        return list(self._sessions.values())

    def delete_session(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)
        self._turns.pop(session_id, None)

    def _store_session(self, session: Session) -> None:
        self._sessions[session.id] = session
        self._sessions.move_to_end(session.id)
        while len(self._sessions) > MAX_SESSIONS:
            self.delete_session(next(iter(self._sessions)))


_stores: defaultdict[tuple[str, str], InMemoryStore] = defaultdict(InMemoryStore)


def open_memory_store(tenant: str, name: str) -> InMemoryStore:
    """The store of this name, which the tenant's nodes of this process share."""
    return _stores[tenant, name]


def drop_expired_turns(turns: Sequence[Turn], ttl: float, now: datetime) -> list[Turn]:
    """The turns since the last pause of more than `ttl` seconds; none if it lasts until now."""
    live: list[Turn] = []
    next_time = now
    for turn in reversed(turns):
        if (next_time - turn.timestamp).total_seconds() > ttl:
            break
        live.append(turn)
        next_time = turn.timestamp
    return live[::-1]
