"""Conversations that end with the process."""

from collections import OrderedDict, deque
from typing import TypeAlias

from rag_core.types import Answer, Message, Query

SESSIONS, MESSAGES = 1_000, 200
"""How many are kept: of sessions those that spoke last, of each its latest messages."""

_Session: TypeAlias = tuple[str, str, tuple[str, ...], str]


class InMemoryConversations:
    """A session is known to those who may see the same: what was quoted in it is not told to others."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[_Session, deque[Message]] = OrderedDict()

    async def history(self, query: Query, most: int) -> list[Message]:
        known = self._sessions.get(_session(query), deque())
        return list(known)[len(known) - min(most, len(known)) :]

    async def remember(self, query: Query, answer: Answer) -> None:
        if not query.session_id:
            return
        session = _session(query)
        messages = self._sessions.setdefault(session, deque(maxlen=MESSAGES))
        messages += (Message(role="user", text=query.text), Message(role="assistant", text=answer.text))
        self._sessions.move_to_end(session)
        while len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)


def _session(query: Query) -> _Session:
    return query.tenant, query.collection, query.groups, query.session_id
