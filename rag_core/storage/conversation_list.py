"""The conversations of one tenant's callers as lists: to show and to erase them."""

from collections.abc import Sequence
from typing import Any

from psycopg import Connection
from psycopg.rows import dict_row

from rag_core.errors import NotFoundError
from rag_core.storage.audit import Change, record
from rag_core.storage.postgres import Postgres, transaction
from rag_core.telemetry.operation import record_resource
from rag_core.types import Query, conversation_id

LIST = """
select session_id as id, title, started_at, last_activity_at, n_turns as turns,
  to_char(last_activity_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || ' ' || id as key
from conversations
where tenant = %(tenant)s and groups = %(groups)s and memory_store = ''
  and (last_activity_at, id) < (%(before)s::timestamptz, %(before_id)s::uuid)
order by last_activity_at desc, id desc limit %(limit)s"""
HAS_CONVERSATION = "select from conversations where tenant = %(tenant)s and id = %(id)s"
MESSAGES = """
select n, id, role, text, created_at, sources, verdict, confidence from messages
where tenant = %(tenant)s and conversation_id = %(id)s and n < %(before)s order by n desc limit %(limit)s"""
# The exposure of an answer that failed has no reply. It has a hash of the session id, which callers of other groups can
# use, too.
DELETE_EXPOSURES = """
delete from exposures e where e.tenant = %(tenant)s and (
  e.answer_id in (select id from replies where tenant = %(tenant)s and conversation_id = %(id)s)
  or e.conversation = %(hash)s and not exists (select from conversations
    where tenant = %(tenant)s and session_id = %(session_id)s and memory_store = '' and id <> %(id)s))"""
DELETE_REPLIES = "delete from replies where tenant = %(tenant)s and conversation_id = %(id)s"
DELETE = "delete from conversations where tenant = %(tenant)s and id = %(id)s"
DELETE_OLD = "delete from conversations where last_activity_at < now() - make_interval(days => %(days)s)"


class ConversationList:
    """The conversations that callers of these groups have, over one connection."""

    def __init__(self, connection: Connection, tenant: str, groups: Sequence[str]) -> None:
        self._connection, self._tenant, self._groups = connection, tenant, tuple(groups)

    def conversations(self, limit: int, before: str) -> list[dict[str, Any]]:
        """A page of conversations, the one with the latest message first. `before` is the `key` of a row."""
        time, id = before.split()
        scope = {"groups": sorted(self._groups), "before": time, "before_id": id, "limit": limit}
        return self._rows(LIST, {"tenant": self._tenant, **scope})

    def messages(self, session_id: str, limit: int, before: int) -> list[dict[str, Any]]:
        """A page of messages, newest first. `before`: only those with a lower `n`. Raises NotFoundError."""
        scope = {**self._scope(session_id), "before": before, "limit": limit}
        record_resource(str(scope["id"]))
        if not self._rows(HAS_CONVERSATION, scope):
            raise _not_found(session_id)
        return self._rows(MESSAGES, scope)

    def erase(self, session_id: str, hash: str) -> None:
        """Deletes the conversation, and its answers with their feedback and their part in experiments.

        `hash` is that of the session in experiments. Raises NotFoundError if there is no such conversation.
        """
        scope = {**self._scope(session_id), "session_id": session_id, "hash": hash}
        with transaction(self._connection, self._tenant):
            self._connection.execute(DELETE_EXPOSURES, scope)
            deleted = [self._connection.execute(statement, scope).rowcount for statement in (DELETE_REPLIES, DELETE)]
            if not any(deleted):
                raise _not_found(session_id)
            change = Change(operation="conversations.erase", kind="conversation", ids=[scope["id"]])
            record(self._connection, self._tenant, change)

    def _scope(self, session_id: str) -> dict[str, Any]:
        query = Query(text="", tenant=self._tenant, groups=self._groups, session_id=session_id)
        return {"tenant": self._tenant, "id": conversation_id(query)}

    def _rows(self, statement: str, scope: dict[str, Any]) -> list[dict[str, Any]]:
        with transaction(self._connection, self._tenant), self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(statement.encode(), scope).fetchall()


def _not_found(session_id: str) -> NotFoundError:
    return NotFoundError(f"no conversation {session_id!r}: it is unknown, or older than retention.conversations")


def delete_old_conversations(postgres: Postgres, tenant: str, days: int) -> int:
    """Deletes the conversations whose last message is older, and returns their number.

    They are those of all tenants, or of `tenant` if the login has no roles of the store.
    """
    with postgres.connect("rag_worker") as connection, transaction(connection, tenant):
        return connection.execute(DELETE_OLD, {"days": days}).rowcount
