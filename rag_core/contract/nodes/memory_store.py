"""The port of memory stores, which keep the turns of conversations, and a store in memory."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from rag_core.config import Settings
from rag_core.contract.nodes.memory_turns import Session, Turn, find_participant
from rag_core.contract.nodes.postgres_memory import PostgresMemoryStore
from rag_core.conversation.in_memory import MAX_MESSAGES, MAX_SESSIONS
from rag_core.storage.postgres import Postgres
from rag_core.wiring.encryption import build_cipher

IN_POSTGRES = "postgres"
"""The name of the memory store in Postgres, and the beginning of the names of others, such as `postgres:chat`."""


class BaseMemoryStore(Protocol):
    async def get_session(self, session_id: str) -> Session:
        """The session, which begins now if it is new."""
        ...

    async def save_turn(self, session_id: str, turn: Turn) -> None:
        """Adds the turn to the end; one whose id is stored is not added again."""
        ...

    async def get_history(self, session_id: str, limit: int) -> list[Turn]:
        """The last `limit` turns, oldest first."""
        ...


class SessionStore(BaseMemoryStore, Protocol):
    """A memory store whose sessions can be listed and closed."""

    async def list_sessions(self) -> list[Session]:
        """The sessions, the one with the latest activity last."""
        ...

    async def delete_session(self, session_id: str) -> None: ...


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
        turns = self._turns.setdefault(session_id, deque(maxlen=MAX_MESSAGES))
        if turn.id not in {stored.id for stored in turns}:
            turns.append(turn)
        participants = dict.fromkeys((*session.participants, find_participant(turn)))
        latest = max(stored.timestamp for stored in turns)
        changes = {"last_activity_at": latest, "participants": tuple(participants)}
        self._store_session(session.model_copy(update=changes))

    async def get_history(self, session_id: str, limit: int) -> list[Turn]:
        turns = list(self._turns.get(session_id, ()))
        return turns[max(0, len(turns) - limit) :]

    async def list_sessions(self) -> list[Session]:
        return sorted(self._sessions.values(), key=lambda session: session.last_activity_at)

    async def delete_session(self, session_id: str) -> None:
        self._forget(session_id)

    def _forget(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)
        self._turns.pop(session_id, None)

    def _store_session(self, session: Session) -> None:
        self._sessions[session.id] = session
        self._sessions.move_to_end(session.id)
        while len(self._sessions) > MAX_SESSIONS:
            self._forget(next(iter(self._sessions)))


_stores: defaultdict[tuple[str, str], InMemoryStore] = defaultdict(InMemoryStore)


def open_memory_store(settings: Settings, name: str) -> SessionStore:
    """The store of this name: in Postgres, or one that the tenant's nodes of this process share.

    Raises StoreError if Postgres cannot be reached.
    """
    if name.partition(":")[0] == IN_POSTGRES:
        cipher = build_cipher(settings.encryption)
        return PostgresMemoryStore(Postgres.open(settings.store.url), settings.tenant, name, cipher)
    return _stores[settings.tenant, name]


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
