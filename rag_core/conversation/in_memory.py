"""Conversations in memory, which end with the process."""

from collections import OrderedDict, deque
from typing import TypeAlias

from rag_core.conversation.messages import turn_messages
from rag_core.types import Message, Query, Turn

MAX_SESSIONS, MAX_MESSAGES = 1_000, 200
"""The sessions that are kept, those of the latest messages, and the latest messages that are kept of each."""

_SessionKey: TypeAlias = tuple[str, str, tuple[str, ...], str]


class InMemoryConversations:
    """Conversations by session, tenant, collection and groups.

    Callers of other groups have another session under the same id: its messages can quote documents that they may not
    read.
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[_SessionKey, deque[Message]] = OrderedDict()

    async def history(self, query: Query, limit: int) -> list[Message]:
        messages = list(self._sessions.get(_session_key(query), ()))
        recent = messages[max(0, len(messages) - limit) :]
        return recent if len(recent) == len(messages) else [messages[0], *recent]

    async def remember(self, turn: Turn) -> None:
        if not turn.query.session_id:
            return
        key = _session_key(turn.query)
        messages = self._sessions.setdefault(key, deque(maxlen=MAX_MESSAGES))
        messages += turn_messages(turn)
        self._sessions.move_to_end(key)
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)


def _session_key(query: Query) -> _SessionKey:
    return query.tenant, query.collection, query.groups, query.session_id
