"""The sessions of a memory store: conversations of their own, which are not those of the gateway's callers."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

import psycopg
from psycopg import Connection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from rag_core.encryption import PLAIN_TEXT, TextCipher
from rag_core.errors import StoreError, UsageError
from rag_core.storage.conversations import (
    APPEND,
    ENTER,
    JOIN,
    MAX_TITLE_CHARS,
    decrypt_message,
    encrypt_message,
    replace_unstorable,
    title_place,
)
from rag_core.storage.postgres import transaction
from rag_core.types import UNSTORABLE

# Locks the row, so that it cannot be deleted before it is read.
OPEN = """
insert into conversations (tenant, id, session_id, groups, memory_store)
values (%(tenant)s, %(conversation)s, %(session_id)s, '{}', %(store)s)
on conflict (tenant, id) do update set memory_store = excluded.memory_store"""
SET_ACTIVITY = """
update conversations set memory_store = %(store)s, last_activity_at = (select max(created_at) from messages
  where tenant = %(tenant)s and conversation_id = %(conversation)s)
where tenant = %(tenant)s and id = %(conversation)s"""
SESSIONS = """
select session_id as id, started_at, last_activity_at, metadata,
  array(select name from participants p where p.tenant = c.tenant and p.conversation_id = c.id order by joined_at)
    as participants
from conversations c where tenant = %(tenant)s and memory_store = %(store)s
  and (%(conversation)s::uuid is null or id = %(conversation)s) order by last_activity_at, id"""
HISTORY = """
select id, %(session_id)s as session_id, role, text, created_at as timestamp, metadata from messages
where tenant = %(tenant)s and conversation_id = %(conversation)s order by n desc limit %(limit)s"""
DELETE = "delete from conversations where tenant = %(tenant)s and id = %(conversation)s"

_IDS = UUID("0d6c57d4-3f5c-5c2f-8c53-5d5f6f3f0a4e")
_COLUMNS = {"titles": [], "standalone": "", "is_shift": False, "verdict": "unchecked", "finish": "", "sources": []}
"""The columns of a message that only gateways set."""


class MemorySessions:
    """The sessions of the tenant's memory store `store`, over one connection. Methods raise StoreError."""

    def __init__(self, connection: Connection, tenant: str, store: str, cipher: TextCipher = PLAIN_TEXT) -> None:
        self._connection, self._tenant, self._store, self._cipher = connection, tenant, store, cipher

    def open(self, session_id: str) -> dict[str, Any]:
        """The row of the session, which begins now if it is new."""
        (session,) = self._run(self._scope(session_id), OPEN, SESSIONS)
        return session

    def save(self, session_id: str, turn: Mapping[str, Any], participant: str) -> None:
        """Adds a turn to the end of its session; one whose id is stored is not added again.

        U+FFFD replaces characters that Postgres cannot store. `intent` and `entities` of the metadata become columns if
        they are a text and a list of texts.
        """
        turn = replace_unstorable(turn)
        metadata, text = turn["metadata"], turn["content"]
        intent, entities = metadata.get("intent"), metadata.get("entities")
        is_listed = isinstance(entities, list) and all(isinstance(entity, str) for entity in entities)
        message = {
            **_COLUMNS,
            "position": 1,
            "id": turn["id"],
            "role": turn["role"],
            "text": text,
            "created_at": turn["timestamp"],
            "intent": intent if isinstance(intent, str) else "",
            "entities": entities if is_listed else [],
            "metadata": metadata,
        }
        scope, title = self._scope(session_id), text[:MAX_TITLE_CHARS] if turn["role"] == "user" else ""
        place, cipher = (self._tenant, scope["conversation"]), self._cipher
        scope["title"] = cipher.encrypt(title, title_place(*place))
        scope["messages"] = Jsonb([encrypt_message(message, cipher, *place)])
        participant = replace_unstorable(participant)
        self._run({**scope, "participant": participant}, ENTER, APPEND, JOIN, SET_ACTIVITY)

    def history(self, session_id: str, limit: int) -> list[dict[str, Any]]:
        """The last `limit` turns, oldest first. Raises EncryptionError if one cannot be decrypted."""
        scope = self._scope(session_id)
        rows = self._run({**scope, "limit": limit}, HISTORY)[::-1]
        messages = (decrypt_message(row, self._cipher, self._tenant, scope["conversation"]) for row in rows)
        return [{"content": message.pop("text"), **message} for message in messages]

    def list_sessions(self) -> list[dict[str, Any]]:
        """The sessions, the one with the latest activity last."""
        return self._run({**self._scope(""), "conversation": None}, SESSIONS)

    def delete(self, session_id: str) -> None:
        self._run(self._scope(session_id), DELETE)

    def _scope(self, session_id: str) -> dict[str, Any]:
        """Raises UsageError for a session id that Postgres cannot store."""
        if UNSTORABLE.search(session_id):
            raise UsageError(f"session_id must not contain NUL or lone surrogates, got {session_id!r:.80}")
        id = uuid5(_IDS, f"{self._tenant}\x1f{self._store}\x1f{session_id}")
        key = {"tenant": self._tenant, "conversation": id, "session_id": session_id, "store": self._store}
        return {**key, "groups": [], "user_id": "", "answer_id": "", "collection": ""}

    def _run(self, scope: Mapping[str, Any], *statements: str) -> list[dict[str, Any]]:
        """Runs the statements in one transaction, and returns the rows of the last one."""
        try:
            with transaction(self._connection, self._tenant), self._connection.cursor(row_factory=dict_row) as cursor:
                for statement in statements:
                    cursor.execute(statement.encode(), scope)
                return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise StoreError(f"the store refused a session: {str(error).strip()}") from error
