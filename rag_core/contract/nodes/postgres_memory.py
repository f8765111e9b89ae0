"""A memory store in Postgres, whose sessions outlast the process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from anyio import to_thread

from rag_core.contract.nodes.memory_turns import Session, Turn, find_participant
from rag_core.encryption import PLAIN_TEXT, TextCipher
from rag_core.storage.memory_sessions import MemorySessions
from rag_core.storage.postgres import Postgres

T = TypeVar("T")


class PostgresMemoryStore:
    """The memory store `name` of a tenant. Each call opens a connection in a thread, so it works in any event loop."""

    def __init__(self, postgres: Postgres, tenant: str, name: str, cipher: TextCipher = PLAIN_TEXT) -> None:
        self._postgres, self._tenant, self._name, self._cipher = postgres, tenant, name, cipher

    async def get_session(self, session_id: str) -> Session:
        return Session(**await self._run(lambda sessions: sessions.open(session_id)))

    async def save_turn(self, session_id: str, turn: Turn) -> None:
        row = turn.model_dump(mode="json")
        await self._run(lambda sessions: sessions.save(session_id, row, find_participant(turn)))

    async def get_history(self, session_id: str, limit: int) -> list[Turn]:
        return [Turn(**row) for row in await self._run(lambda sessions: sessions.history(session_id, limit))]

    async def list_sessions(self) -> list[Session]:
        return [Session(**row) for row in await self._run(MemorySessions.list_sessions)]

    async def delete_session(self, session_id: str) -> None:
        await self._run(lambda sessions: sessions.delete(session_id))

    async def _run(self, work: Callable[[MemorySessions], T]) -> T:
        def run() -> T:
            with self._open() as sessions:
                return work(sessions)

        return await to_thread.run_sync(run)

    @contextmanager
    def _open(self) -> Iterator[MemorySessions]:
        with self._postgres.connect() as connection:
            yield MemorySessions(connection, self._tenant, self._name, self._cipher)
