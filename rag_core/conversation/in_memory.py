"""Conversations in memory, which end with the process."""

from collections import OrderedDict, deque
from uuid import UUID

from rag_core.conversation.messages import turn_messages
from rag_core.types import Message, Query, Turn, conversation_id

MAX_SESSIONS, MAX_MESSAGES = 1_000, 200
"""The sessions that are kept, those of the latest messages, and the latest messages that are kept of each."""


class InMemoryConversations:
    """Conversations by tenant, session and user. Old ones are forgotten, and old messages of long ones."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[UUID, deque[tuple[Query, Message]]] = OrderedDict()

    async def history(self, query: Query, limit: int) -> list[Message]:
        stored = self._sessions.get(conversation_id(query), ()) if query.session_id else ()
        messages = [
            message
            for asked, message in stored
            if set(asked.groups) <= set(query.groups) and (not asked.answer_id or asked.answer_id != query.answer_id)
        ]
        recent = messages[max(0, len(messages) - limit) :]
        return recent if len(recent) == len(messages) else [messages[0], *recent]

    async def remember(self, turn: Turn) -> None:
        query = turn.query
        if not query.session_id:
            return
        key = conversation_id(query)
        messages = self._sessions.setdefault(key, deque(maxlen=MAX_MESSAGES))
        if not query.answer_id or query.answer_id not in {asked.answer_id for asked, _ in messages}:
            messages.extend((query, message) for message in turn_messages(turn))
        self._sessions.move_to_end(key)
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
