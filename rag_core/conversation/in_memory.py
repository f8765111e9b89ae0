"""Conversations that end with the process."""

from collections import OrderedDict, deque

from rag_core.types import Answer, Message, Query

SESSIONS, MESSAGES = 1_000, 200
"""How many are kept: of sessions those that spoke last, of each its latest messages."""


class InMemoryConversations:
    def __init__(self) -> None:
        self._sessions: OrderedDict[tuple[str, str], deque[Message]] = OrderedDict()

    async def history(self, query: Query, most: int) -> list[Message]:
        known = self._sessions.get((query.tenant, query.session_id), deque())
        return list(known)[len(known) - min(most, len(known)) :]

    async def remember(self, query: Query, answer: Answer) -> None:
        if not query.session_id:
            return
        session = (query.tenant, query.session_id)
        messages = self._sessions.setdefault(session, deque(maxlen=MESSAGES))
        messages += (Message(role="user", text=query.text), Message(role="assistant", text=answer.text))
        self._sessions.move_to_end(session)
        while len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)
