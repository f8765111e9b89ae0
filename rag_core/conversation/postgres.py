"""Conversations in the store, which outlast the process and are shared by all processes."""

from dataclasses import dataclass

from rag_core.conversation.messages import turn_messages
from rag_core.storage.conversations import StoredConversations
from rag_core.types import Message, Query, Turn


@dataclass(frozen=True, slots=True)
class PostgresConversations:
    """Conversations by tenant, session and user, as in memory. Methods raise StoreError."""

    stored: StoredConversations

    async def history(self, query: Query, limit: int) -> list[Message]:
        return await self.stored.history(query, limit) if query.session_id else []

    async def remember(self, turn: Turn) -> None:
        if turn.query.session_id:
            await self.stored.append(turn, turn_messages(turn))
