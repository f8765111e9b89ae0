"""The conversations of one caller as lists: to show, to share and to erase them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, LiteralString
from uuid import UUID

from psycopg import Connection
from psycopg.rows import dict_row

from rag_core.encryption import PLAIN_TEXT, TextCipher
from rag_core.errors import EncryptionError, NotFoundError
from rag_core.storage.audit import Change, record
from rag_core.storage.conversation_references import (
    FIND_REFERENCED,
    format_reference,
    parse_reference,
)
from rag_core.storage.conversations import decrypt_message, title_place
from rag_core.storage.postgres import transaction
from rag_core.telemetry.operation import record_resource
from rag_core.types import Query, conversation_id

LIST = """
select session_id, id as conversation, title, started_at, last_activity_at, n_turns as turns,
  to_char(last_activity_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || ' ' || id as key
from conversations
where tenant = %(tenant)s and memory_store = '' and (
    user_id = %(owner)s and (user_id <> '' or groups = %(groups)s)
    or user_id <> '' and id in (select conversation_id from participants
      where tenant = %(tenant)s and name = %(owner)s and is_invited))
  and (last_activity_at, id) < (%(before)s::timestamptz, %(before_id)s::uuid)
order by last_activity_at desc, id desc limit %(limit)s"""
HAS_CONVERSATION = "select from conversations where tenant = %(tenant)s and id = %(id)s"
MESSAGES = """
select n, id, role, text, created_at, sources, verdict, confidence from messages
where tenant = %(tenant)s and conversation_id = %(id)s and n < %(before)s
  and (%(sees_all)s or groups <@ %(groups)s::text[]) order by n desc limit %(limit)s"""
LOCK = "select session_id, user_id from conversations where tenant = %(tenant)s and id = %(id)s for update"
UNINVITE = (
    """
delete from participants
where tenant = %(tenant)s and conversation_id = %(id)s and name <> all(%(users)s) and not has_written""",
    """
update participants set is_invited = false
where tenant = %(tenant)s and conversation_id = %(id)s and name <> all(%(users)s)""",
)
INVITE = """
insert into participants (tenant, conversation_id, name, is_invited, has_written)
select %(tenant)s, %(id)s, unnest(%(users)s::text[]), true, false
on conflict (tenant, conversation_id, name) do update set is_invited = true"""
# The answers of participants have the id of a conversation of their own.
IS_ANSWER: LiteralString = """(select id from replies where tenant = %(tenant)s and conversation_id = %(id)s
    union select answer_id from messages where tenant = %(tenant)s and conversation_id = %(id)s)"""
# The exposure of an answer that failed has no reply. It has a hash of the session id, which other callers can use, too.
DELETE_EXPOSURES = (
    "delete from exposures e where e.tenant = %(tenant)s and (e.answer_id in "  # noqa: S608 - both are constants
    + IS_ANSWER
    + """
  or e.conversation = %(reference_hash)s
  or e.conversation = %(hash)s and not exists (select from conversations
    where tenant = %(tenant)s and session_id = %(session_id)s and memory_store = '' and id <> %(id)s))"""
)
DELETE_REPLIES = "delete from replies where tenant = %(tenant)s and id in " + IS_ANSWER  # noqa: S608 - constants
DELETE = "delete from conversations where tenant = %(tenant)s and id = %(id)s"


class ConversationList:
    """The conversations that a user of these groups has or participates in, over one connection.

    Without a user, they are those of unknown users with exactly these groups. `sees_all`: the user is an administrator,
    who can read and erase the conversations of others by their references.
    """

    def __init__(
        self,
        connection: Connection,
        tenant: str,
        groups: Sequence[str],
        user: str = "",
        sees_all: bool = False,
        cipher: TextCipher = PLAIN_TEXT,
    ) -> None:
        self._connection, self._sees_all, self._cipher = connection, sees_all, cipher
        self._own = Query(text="", tenant=tenant, groups=tuple(sorted(groups)), user_id=user)

    def conversations(self, limit: int, before: str, owner: str = "") -> list[dict[str, Any]]:
        """A page of conversations, the one with the latest message first. `before` is the `key` of a row.

        `owner` is the user whose conversations are listed, this one if it is empty. The `id` of a conversation is
        its session id if that leads to it, or else its reference: another user opened it, or an earlier version stored
        it. A title that cannot be decrypted is empty.
        """
        time, id = before.split()
        scope = {"owner": owner or self._own.user_id, "before": time, "before_id": id, "limit": limit}
        return [self._describe(**row) for row in self._rows(LIST, {**self._scope, **scope})]

    def messages(self, session_id: str, limit: int, before: int) -> list[dict[str, Any]]:
        """A page of messages, newest first, without those of groups that the user lacks.

        `before`: only messages with a lower `n`. Raises NotFoundError, and EncryptionError if a message cannot be
        decrypted.
        """
        scope = {**self._scope, "id": self._find(session_id), "before": before, "limit": limit}
        record_resource(str(scope["id"]))
        if not self._rows(HAS_CONVERSATION, scope):
            raise _not_found(session_id)
        rows = self._rows(MESSAGES, scope)
        return [decrypt_message(row, self._cipher, self._own.tenant, scope["id"]) for row in rows]

    def invite(self, session_id: str, users: Sequence[str]) -> UUID:
        """Makes these users, and no others, the participants of a conversation of this user. Returns its id.

        Raises NotFoundError if the user has no such conversation.
        """
        id = self._find(session_id)
        scope = {**self._scope, "id": id, "users": list(users)}
        with transaction(self._connection, self._own.tenant):
            row = self._connection.execute(LOCK, scope).fetchone()
            if row is None or not row[1] or row[1] != self._own.user_id:
                raise _not_found(session_id)
            for statement in (*UNINVITE, INVITE):
                self._connection.execute(statement, scope)
            detail = {"participants": len(users)}
            change = Change(operation="conversations.share", kind="conversation", ids=[id], detail=detail)
            record(self._connection, self._own.tenant, change)
        return id

    def erase(self, session_id: str, hash_session: Callable[[str], str]) -> None:
        """Deletes the conversation, and its answers with their feedback and their part in experiments.

        `hash_session` computes the hash of a session in experiments. Raises NotFoundError if there is no such
        conversation.
        """
        id = self._find(session_id)
        scope = {**self._scope, "id": id, "reference_hash": hash_session(format_reference(id))}
        with transaction(self._connection, self._own.tenant):
            session, owner = self._connection.execute(LOCK, scope).fetchone() or (session_id, self._own.user_id)
            if owner != self._own.user_id and not self._sees_all:
                raise _not_found(session_id)
            scope |= {"session_id": session, "hash": hash_session(session)}
            self._connection.execute(DELETE_EXPOSURES, scope)
            deleted = [self._connection.execute(statement, scope).rowcount for statement in (DELETE_REPLIES, DELETE)]
            if not any(deleted):
                raise _not_found(session_id)
            change = Change(operation="conversations.erase", kind="conversation", ids=[scope["id"]])
            record(self._connection, self._own.tenant, change)

    def _describe(self, session_id: str, conversation: UUID, title: str, **row: Any) -> dict[str, Any]:
        own = conversation_id(replace(self._own, session_id=session_id))
        id = session_id if own == conversation else format_reference(conversation)
        return {**row, "id": id, "title": self._decrypt_title(title, conversation)}

    def _decrypt_title(self, title: str, conversation: UUID) -> str:
        try:
            return self._cipher.decrypt(title, title_place(self._own.tenant, conversation))
        except EncryptionError:
            return ""

    def _find(self, session_id: str) -> UUID:
        """The id of the conversation that the session id refers to, or that of the own one if it cannot be read."""
        reference = parse_reference(session_id)
        if reference and self._rows(FIND_REFERENCED, {**self._scope, "reference": reference}):
            return reference
        return conversation_id(replace(self._own, session_id=session_id))

    @property
    def _scope(self) -> dict[str, Any]:
        own = self._own
        return {"tenant": own.tenant, "user": own.user_id, "groups": list(own.groups), "sees_all": self._sees_all}

    def _rows(self, statement: str, scope: dict[str, Any]) -> list[dict[str, Any]]:
        with transaction(self._connection, self._own.tenant), self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(statement.encode(), scope).fetchall()


def _not_found(session_id: str) -> NotFoundError:
    return NotFoundError(f"no conversation {session_id!r}: it is unknown, or older than retention.conversations")
