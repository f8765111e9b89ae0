"""The messages of conversations, and their order.

A message is shown to callers who have all groups that its first reader had.

Turns of one conversation are stored one after the other: each locks the row of the conversation until it is committed.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout
from pydantic import TypeAdapter

from rag_core.encryption import PLAIN_TEXT, Place, TextCipher
from rag_core.errors import StoreError
from rag_core.storage.conversation_references import FIND_REFERENCED, parse_reference
from rag_core.storage.pools import assume_app_role, build_pool
from rag_core.storage.postgres import SET_TENANT, Postgres, redact_dsn
from rag_core.types import UNSTORABLE, Citation, Message, Query, Turn, conversation_id

# Both parts use the primary key. A turn that is answered again does not see its own messages.
HISTORY = """
select id, role, text, titles, entities, intent, standalone, is_shift from (
  (select * from messages where tenant = %(tenant)s and conversation_id = %(conversation)s and role <> 'system'
    and groups <@ %(groups)s::text[] and (answer_id = '' or answer_id <> %(answer_id)s) order by n limit 1)
  union all
  (select * from messages where tenant = %(tenant)s and conversation_id = %(conversation)s and role <> 'system'
    and groups <@ %(groups)s::text[] and (answer_id = '' or answer_id <> %(answer_id)s) order by n desc limit %(limit)s)
) shown group by n, id, role, text, titles, entities, intent, standalone, is_shift order by n"""
# Locks the row of the conversation.
ENTER = """
insert into conversations (tenant, id, session_id, groups, user_id, title)
values (%(tenant)s, %(conversation)s, %(session_id)s, %(groups)s, %(user_id)s, %(title)s)
on conflict (tenant, id) do update set last_activity_at = clock_timestamp(),
  user_id = coalesce(nullif(conversations.user_id, ''), excluded.user_id),
  title = coalesce(nullif(conversations.title, ''), excluded.title)"""
# Runs after ENTER, so it sees all turns that were committed before. Stores nothing if a message has a stored id.
APPEND = """
with given as (
  select * from jsonb_to_recordset(%(messages)s) as given (position int, id text, role text, text text, titles text[],
    entities text[], intent text, standalone text, is_shift boolean, drift double precision,
    confidence double precision, verdict text, finish text, sources jsonb, metadata jsonb,
    created_at timestamptz)
), added as (
  insert into messages (tenant, conversation_id, n, turn, id, answer_id, collection_name, groups, role, text, titles,
    entities, intent, standalone, is_shift, drift, confidence, verdict, finish, sources, metadata,
    created_at)
  select c.tenant, c.id, c.n_messages + g.position,
    c.n_turns + count(*) filter (where g.role = 'user') over (order by g.position),
    g.id, %(answer_id)s, %(collection)s, %(groups)s::text[], g.role, g.text, g.titles, g.entities, g.intent,
    g.standalone, g.is_shift, g.drift, g.confidence, g.verdict, g.finish, g.sources, g.metadata,
    coalesce(g.created_at, clock_timestamp())
  from conversations c cross join given g
  where c.tenant = %(tenant)s and c.id = %(conversation)s and not exists (select from messages m
    where m.tenant = c.tenant and m.conversation_id = c.id and m.id in (select id from given))
  returning role)
update conversations set n_messages = n_messages + (select count(*) from added),
  n_turns = n_turns + (select count(*) from added where role = 'user')
where tenant = %(tenant)s and id = %(conversation)s"""
JOIN = """
insert into participants (tenant, conversation_id, name)
select %(tenant)s, %(conversation)s, %(participant)s where %(participant)s <> ''
on conflict (tenant, conversation_id, name) do update set has_written = true where not participants.has_written"""

MAX_TITLE_CHARS = 200
CONNECTIONS = 4
"""Connections of a process. A statement takes about a millisecond."""

LIMIT_STATEMENTS = " -c statement_timeout=10s"

TEXTS, LISTS, OBJECTS = ("text", "standalone"), ("titles", "entities"), ("sources", "metadata")
"""The columns of a message that are encrypted, by their form."""

_SOURCES = TypeAdapter(tuple[Citation, ...])


class StoredConversations:
    """The conversations of a store. Its connections belong to the event loop that uses it first.

    `protect` surrounds each attempt to get a connection. `cipher` encrypts the texts.
    """

    def __init__(
        self,
        postgres: Postgres,
        protect: Callable[[], AbstractContextManager[None]] = nullcontext,
        cipher: TextCipher = PLAIN_TEXT,
    ) -> None:
        self._protect, self._shown, self._cipher = protect, redact_dsn(postgres.dsn), cipher
        self._pool = build_pool(postgres, LIMIT_STATEMENTS, assume_app_role, min_size=0, max_size=CONNECTIONS)

    async def close(self) -> None:
        await self._pool.close()

    async def history(self, query: Query, limit: int) -> list[Message]:
        """The last `limit` messages, oldest first, after the conversation's first message if that is older.

        The messages of the query's own `answer_id` are left out. Raises StoreError, and EncryptionError if a message
        cannot be decrypted.
        """
        async with self._transaction(query.tenant) as connection, connection.cursor(row_factory=dict_row) as cursor:
            scope = {**_scope(query), **await _find(connection, query), "limit": limit}
            await cursor.execute(HISTORY, scope)
            rows = await cursor.fetchall()
        messages = [decrypt_message(row, self._cipher, query.tenant, scope["conversation"]) for row in rows]
        return [Message(**{name: _freeze(row[name]) for name in row if name != "id"}) for row in messages]

    async def append(self, turn: Turn, messages: Sequence[Message]) -> None:
        """Stores the messages of a turn, all or none. Stores nothing if the turn is stored. Raises StoreError."""
        query = turn.query
        rows = replace_unstorable([_describe(turn, position, message) for position, message in enumerate(messages, 1)])
        title = replace_unstorable(query.text)[:MAX_TITLE_CHARS]
        async with self._transaction(query.tenant) as connection:
            scope = {**_scope(query), **await _find(connection, query)}
            conversation = scope["conversation"]
            scope |= {
                "session_id": query.session_id,
                "user_id": query.user_id,
                "participant": query.user_id,
                "title": self._cipher.encrypt(title, title_place(query.tenant, conversation)),
                "collection": query.collection,
                "messages": Jsonb([encrypt_message(row, self._cipher, query.tenant, conversation) for row in rows]),
            }
            for statement in (ENTER, APPEND, JOIN):
                await connection.execute(statement, scope)

    @asynccontextmanager
    async def _transaction(self, tenant: str) -> AsyncIterator[AsyncConnection]:
        """A transaction of the tenant, in which statements are sent without waiting for the results of others."""
        try:
            async with AsyncExitStack() as opened:
                with self._protect():
                    await self._pool.open()
                    connection = await opened.enter_async_context(self._pool.connection())
                async with connection.pipeline(), connection.transaction():
                    await connection.execute(SET_TENANT, {"tenant": tenant})
                    yield connection
        except (psycopg.Error, PoolTimeout) as error:
            message = f"cannot use the conversations of the store at {self._shown}: {str(error).strip()}"
            raise StoreError(message) from error


def _scope(query: Query) -> dict[str, Any]:
    return {"tenant": query.tenant, "groups": sorted(query.groups), "answer_id": query.answer_id}


async def _find(connection: AsyncConnection, query: Query) -> dict[str, UUID]:
    """The parameter `conversation`: the one that the session id refers to if the user can continue it, or the own one.

    A reference that the user cannot use is a session id like any other.
    """
    if reference := parse_reference(query.session_id):
        scope = {"reference": reference, "tenant": query.tenant, "user": query.user_id, "sees_all": False}
        if row := await (await connection.execute(FIND_REFERENCED, scope)).fetchone():
            return {"conversation": row[0]}
    return {"conversation": conversation_id(query)}


def _freeze(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _describe(turn: Turn, position: int, message: Message) -> Mapping[str, Any]:
    """The row of a message. The id of an answer is that of its query."""
    answer, is_answer = turn.answer, message.role == "assistant"
    return {
        "position": position,
        "id": (is_answer and turn.query.answer_id) or str(uuid4()),
        "role": message.role,
        "text": message.text,
        "titles": message.titles,
        "entities": message.entities,
        "intent": message.intent,
        "standalone": message.standalone,
        "is_shift": message.is_shift,
        "drift": None if is_answer else turn.understanding.drift,
        "confidence": answer.confidence if is_answer else None,
        "verdict": answer.verdict.grade if is_answer else "unchecked",
        "finish": answer.finish if is_answer else "",
        "sources": _SOURCES.dump_python(answer.citations, mode="json") if is_answer else [],
        "metadata": {},
    }


def encrypt_message(row: Mapping[str, Any], cipher: TextCipher, tenant: str, conversation: UUID) -> dict[str, Any]:
    """The row of a message with its texts encrypted."""
    place = (tenant, str(conversation), row["id"])
    return {
        **row,
        **{name: cipher.encrypt(row[name], (*place, name)) for name in TEXTS if name in row},
        **{name: cipher.encrypt_list(row[name], (*place, name)) for name in LISTS if name in row},
        **{name: cipher.encrypt_json(row[name], (*place, name)) for name in OBJECTS if name in row},
    }


def decrypt_message(row: Mapping[str, Any], cipher: TextCipher, tenant: str, conversation: UUID) -> dict[str, Any]:
    """The row of a message, or a part of it with its id, with its texts decrypted. Raises EncryptionError."""
    place = (tenant, str(conversation), row["id"])
    return {
        **row,
        **{name: cipher.decrypt(row[name], (*place, name)) for name in TEXTS if name in row},
        **{name: cipher.decrypt_list(row[name], (*place, name)) for name in LISTS if name in row},
        **{name: cipher.decrypt_json(row[name], (*place, name)) for name in OBJECTS if name in row},
    }


def title_place(tenant: str, conversation: UUID) -> Place:
    return (tenant, str(conversation), "title")


def replace_unstorable(value: Any) -> Any:
    """The value of JSON with U+FFFD for each character of its texts that Postgres cannot store."""
    match value:
        case str():
            return UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
        case Mapping():
            return {replace_unstorable(key): replace_unstorable(part) for key, part in value.items()}
        case list() | tuple():
            return [replace_unstorable(part) for part in value]
        case _:
            return value


def read_sources(sources: object) -> tuple[Citation, ...]:
    """The citations in the column `sources`."""
    return _SOURCES.validate_python(sources)
