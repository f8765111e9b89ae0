"""Erasure: removes the rows of a user, of a conversation, of old times or of a tenant, and counts what is left.

The tables come from the catalog of the database. A table for which there is no rule stops the erasure, so none can be
forgotten.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier

from rag_core.encryption import TextCipher
from rag_core.errors import EncryptionError, StoreError
from rag_core.storage.audit import Change, current_user, record
from rag_core.storage.catalog import Catalog
from rag_core.storage.conversation_references import format_reference, parse_reference
from rag_core.storage.erasure_rules import (
    CONDITIONS,
    EVIDENCE,
    KEPT,
    OF_JOBS,
    PARTLY_KEPT,
    REDACTIONS,
    TENANT_CONDITIONS,
)
from rag_core.storage.ledger import Ledger
from rag_core.storage.lexical.merging import merge
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres, transaction
from rag_core.storage.retention import LAST_COMPLETED_JOBS

# Collections are first: a merge locks the row of its collection, so segments are deleted after it has ended.
TABLES = """
select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant'
where c.relnamespace = 'rag'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
order by c.relname <> 'collections', c.relname"""
# A user is known as the one who began a conversation, or as a participant who wrote in it. Messages have no author, so
# such a conversation is erased as a whole.
CONVERSATIONS = """
select c.id, c.session_id from conversations c where c.tenant = %(tenant)s and (c.user_id = %(user)s
  or (c.session_id = %(session)s or c.id = %(reference)s) and (%(owner)s::text is null or c.user_id = %(owner)s)
  or c.last_activity_at < %(before)s
  or exists (select from participants p
    where p.tenant = c.tenant and p.conversation_id = c.id and p.name = %(user)s and p.has_written))"""
# Other callers can have a conversation under the same session id, and then the same hash in experiments.
SHARED_SESSIONS = """
select distinct session_id from conversations
where tenant = %(tenant)s and session_id = any(%(sessions)s) and id <> all(%(conversations)s)"""
ANSWERS = """
select id from replies where tenant = %(tenant)s and (conversation_id = any(%(conversations)s)
  or user_id = %(user)s or created_at < %(before)s)
union
select answer_id from messages
where tenant = %(tenant)s and conversation_id = any(%(conversations)s) and answer_id <> ''"""
JOBS: LiteralString = f"""
select id from jobs where tenant = %(tenant)s and (user_id = %(user)s
  or finished_at < %(before)s and (tenant, run) not in ({LAST_COMPLETED_JOBS}))"""  # noqa: S608 - a constant
DOCUMENTS = """
select c.name, d.id from documents d join collections c on c.tenant = d.tenant and c.id = d.collection
where d.tenant = %(tenant)s and d.user_id = %(user)s"""
# What log lines can quote. The columns of a table are read as rows of one text each.
MARKS = """
select unnest(array[id::text, session_id]) from conversations where tenant = %(tenant)s
  and id = any(%(conversations)s)
union select id from replies where tenant = %(tenant)s and id = any(%(answers)s)
union select unnest(array[id::text, correlation_id, idempotency_key]) from jobs where tenant = %(tenant)s
  and id = any(%(jobs)s)
union select uri from job_items where tenant = %(tenant)s and job_id = any(%(jobs)s)
union select unnest(array[id, uri, title, url]) from pushed_documents where tenant = %(tenant)s
  and job_id = any(%(jobs)s)
union select unnest(array[id::text, uri, title]) from documents where tenant = %(tenant)s and id = any(%(documents)s)"""
# Texts that can be encrypted, with their places: the ids of the row, and the column.
ENCRYPTED_MARKS = """
select array[id::text, 'title'], title from conversations
  where tenant = %(tenant)s and id = any(%(conversations)s)
union all select array[m.conversation_id::text, m.id, c.name], c.value
  from messages m cross join lateral (values ('text', m.text), ('standalone', m.standalone)) c (name, value)
  where m.tenant = %(tenant)s and m.conversation_id = any(%(conversations)s)
union all select array[r.id, c.name], c.value
  from replies r cross join lateral (values ('question', r.question), ('standalone', r.standalone)) c (name, value)
  where r.tenant = %(tenant)s and r.id = any(%(answers)s)
union all select array[f.answer_id, c.name], c.value from feedback f
  cross join lateral (values ('comment', f.comment), ('corrected_answer', f.corrected_answer)) c (name, value)
  where f.tenant = %(tenant)s and (f.answer_id = any(%(answers)s) or f.user_id = %(user)s)"""
OPEN_JOBS = """
select id from jobs where tenant = %(tenant)s and status in ('queued', 'running')
  and (%(everything)s or id = any(%(jobs)s))"""
COLLECTIONS = "select id from collections where tenant = %(tenant)s order by id"
COUNT = "select count(*), count(*) filter (where {condition}) from {table} t where t.tenant = %(tenant)s"
DELETE = "delete from {table} t where t.tenant = %(tenant)s and ({condition})"
REDACT = "update {table} t set {changes} where t.tenant = %(tenant)s and ({condition})"
# `analyze` keeps the statistics of a table without rows, and they quote the most common values. Older servers than
# Postgres 18 have no function that clears them.
CLEAR_STATISTICS = """
select pg_clear_attribute_stats('rag', c.relname, a.attname, false)
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relnamespace = 'rag'::regnamespace and c.relname = any(%(tables)s)"""
CLEARING_VERSION = 180_000
VACUUM = "vacuum (analyze) {table}"
REWRITE = "vacuum (full, analyze) {table}"

ALL: LiteralString = "true"
NONE: LiteralString = "false"
DERIVED_TABLES = frozenset(
    {
        *("documents", "document_texts", "document_values", "chunks", "vectors", "mentions", "relations", "entities"),
        *("lexical_documents", "lexical_segments", "lexical_postings"),
    }
)
"""The tables from which dropping the documents and merging the segments remove what is erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureScope:
    """What to erase of a tenant: the rows of a user, of a session, or those older than `days`.

    A session with a user is that of this user, else of all users; it can be a reference to a conversation. Without any
    of them, everything of the tenant is erased.
    """

    tenant: str
    user: str = ""
    session: str = ""
    days: int = 0

    @property
    def covers_tenant(self) -> bool:
        return not (self.user or self.session or self.days)

    @property
    def kind(self) -> str:
        """The kind in the audit, which does not name whose rows were erased."""
        if self.session:
            return "conversation"
        return "user" if self.user else "old rows" if self.days else "tenant"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCount:
    """The rows of a table that belong to the tenant, those of them to erase, and those that are left of them."""

    table: str
    rows: int
    found: int
    left: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The texts by which log lines can be recognized, and the number of texts whose key is missing."""

    texts: frozenset[str]
    unreadable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The ids of what is erased: other rows refer to them.

    `sessions` are those that nobody else has. `documents` are pairs of collection and id.
    """

    conversations: frozenset[UUID]
    sessions: frozenset[str]
    answers: frozenset[str]
    jobs: frozenset[UUID]
    documents: frozenset[tuple[str, UUID]]

    def join(self, other: "Selection") -> "Selection":
        return Selection(
            conversations=self.conversations | other.conversations,
            sessions=self.sessions | other.sessions,
            answers=self.answers | other.answers,
            jobs=self.jobs | other.jobs,
            documents=self.documents | other.documents,
        )


class Eraser:
    """Erases what is in the scope, over one connection of the worker's role.

    `hash_session` gives the hash by which experiments know a session.
    """

    def __init__(self, connection: Connection, scope: ErasureScope, hash_session: Callable[[str], str]) -> None:
        self._connection, self._scope, self._hash_session = connection, scope, hash_session
        self._before = datetime.now(UTC) - timedelta(days=scope.days) if scope.days else None
        self._rules = _choose_rules(self._list_tables(), scope)

    @property
    def tables(self) -> list[str]:
        """The tables from which rows can be erased."""
        return [table for table, rule in self._rules.items() if rule != NONE]

    def select(self) -> Selection:
        """Finds the ids of what is to be erased now."""
        with transaction(self._connection, self._scope.tenant):
            scope: dict[str, Any] = self._parameters()
            conversations = self._connection.execute(CONVERSATIONS, scope).fetchall()
            sessions = {self._scope.session, *(session for _, session in conversations)} - {""}
            scope |= {"conversations": [id for id, _ in conversations], "sessions": list(sessions)}
            shared = {session for (session,) in self._connection.execute(SHARED_SESSIONS, scope)}
            return Selection(
                conversations=frozenset(scope["conversations"]),
                sessions=frozenset(sessions - shared),
                answers=frozenset(id for (id,) in self._connection.execute(ANSWERS, scope)),
                jobs=frozenset(id for (id,) in self._connection.execute(JOBS, scope)),
                documents=frozenset(self._connection.execute(DOCUMENTS, scope).fetchall()),
            )

    def count(self, selection: Selection) -> dict[str, tuple[int, int]]:
        """The numbers of all rows of the tenant, and of those to erase, by table."""
        parameters = self._parameters(selection)
        with transaction(self._connection, self._scope.tenant):
            counts = {}
            for table in self._rules:
                row = self._connection.execute(self._build(COUNT, table), parameters).fetchone()
                counts[table] = (row[0], row[1]) if row else (0, 0)
        return counts

    def read_marks(self, selection: Selection, cipher: TextCipher) -> Marks:
        """The ids, names and texts by which log lines can be recognized."""
        parameters = self._parameters(selection)
        with transaction(self._connection, self._scope.tenant):
            texts = {text for (text,) in self._connection.execute(MARKS, parameters)}
            encrypted = self._connection.execute(ENCRYPTED_MARKS, parameters).fetchall()
        unreadable = 0
        for place, text in encrypted:
            try:
                texts.add(cipher.decrypt(text, (self._scope.tenant, *place)))
            except EncryptionError:
                unreadable += 1
        texts.add(self._scope.session or self._scope.user)
        return Marks(texts=frozenset(texts - {""}), unreadable=unreadable)

    def erase(self, selection: Selection, found: Mapping[str, int]) -> None:
        """Cancels the open jobs, deletes the rows in one transaction, and rewrites the segments of the lexical index.

        The transaction ends with its row in the audit, which has the numbers of rows that were found, by table. It can
        be repeated: what an interrupted erasure has left is found again.
        """
        self._cancel_jobs(selection)
        detail: dict[str, Any] = {"rows": found, **({"days": self._scope.days} if self._scope.days else {})}
        with transaction(self._connection, self._scope.tenant):
            for table in self.tables:
                if self._scope.covers_tenant or table not in DERIVED_TABLES:
                    self._delete_rows(table, selection)
            self._drop_documents(selection)
            change = Change(operation="purge", kind=self._scope.kind, detail=detail)
            record(self._connection, self._scope.tenant, change)
        for collection in self._list_collections():
            merge(self._connection, self._scope.tenant, collection, dead_share=0.0)

    def _delete_rows(self, table: str, selection: Selection) -> None:
        """Deletes the rows to erase. In jobs of other users, only texts are erased."""
        parameters, name = self._parameters(selection), Identifier("rag", table)
        if self._scope.covers_tenant or table not in REDACTIONS:
            self._connection.execute(self._build(DELETE, table), parameters)
            return
        changes, rule = SQL(REDACTIONS[table]), SQL(self._rules[table])
        self._connection.execute(SQL(DELETE).format(table=name, condition=SQL(OF_JOBS)), parameters)
        self._connection.execute(SQL(REDACT).format(table=name, changes=changes, condition=rule), parameters)

    def _cancel_jobs(self, selection: Selection) -> None:
        """Cancels jobs before their rows go: their workers can then write nothing more."""
        with transaction(self._connection, self._scope.tenant):
            scope = {**self._parameters(selection), "everything": self._scope.covers_tenant}
            jobs = [id for (id,) in self._connection.execute(OPEN_JOBS, scope)]
        for job in jobs:
            Ledger(self._connection, self._scope.tenant).end(job, "cancelled")

    def _drop_documents(self, selection: Selection) -> None:
        catalog = Catalog(self._connection, self._scope.tenant)
        for name in sorted({name for name, _ in selection.documents}):
            catalog.drop_documents(name, sorted(id for collection, id in selection.documents if collection == name))

    def _list_tables(self) -> list[str]:
        with transaction(self._connection, self._scope.tenant):
            return [table for (table,) in self._connection.execute(TABLES)]

    def _list_collections(self) -> list[int]:
        with transaction(self._connection, self._scope.tenant):
            return [id for (id,) in self._connection.execute(COLLECTIONS, self._parameters())]

    def _build(self, statement: LiteralString, table: str) -> Composed:
        return SQL(statement).format(table=Identifier("rag", table), condition=SQL(self._rules[table]))

    def _parameters(self, selection: Selection | None = None) -> dict[str, Any]:
        chosen = selection or NOTHING
        user, session = self._scope.user or None, self._scope.session or None
        references = map(format_reference, chosen.conversations)  # participants continue a conversation by these
        return {
            "tenant": self._scope.tenant,
            "eraser": current_user(),
            "user": None if session else user,
            "owner": user,
            "session": session,
            "reference": parse_reference(self._scope.session),
            "before": self._before,
            "conversations": list(chosen.conversations),
            "hashes": [self._hash_session(session) for session in (*chosen.sessions, *references)],
            "answers": list(chosen.answers),
            "jobs": list(chosen.jobs),
            "documents": [id for _, id in chosen.documents],
        }


NOTHING = Selection(
    conversations=frozenset(), sessions=frozenset(), answers=frozenset(), jobs=frozenset(), documents=frozenset()
)


def erase(
    postgres: Postgres,
    scope: ErasureScope,
    hash_session: Callable[[str], str],
    dry_run: bool = False,
    rewrite: bool = False,
) -> list[TableCount]:
    """Erases the rows in the scope, and reports for every table how many there were, and how many are left.

    Rows that requests have added meanwhile are left; the next erasure finds them. `dry_run` only counts. `rewrite`
    writes the tables again, which waits for all searches and makes others wait: without it, Postgres leaves the bytes
    of deleted rows in its files until it uses the space again. Raises StoreError.
    """
    try:
        with postgres.connect("rag_worker") as connection:
            eraser = Eraser(connection, scope, hash_session)
            selection = eraser.select()
            before = eraser.count(selection)
            after = before
            if not dry_run:
                eraser.erase(selection, {table: found for table, (_, found) in before.items() if found})
                reclaim_space(postgres, eraser.tables, rewrite)
                after = eraser.count(selection.join(eraser.select()))
        if scope.covers_tenant and not dry_run:
            Maintenance().run(postgres, scope.tenant)  # drops the vector indexes
    except psycopg.Error as error:
        raise StoreError(f"the erasure failed, repeat it: {str(error).strip()}") from error
    notes = {**({} if scope.covers_tenant else KEPT), **EVIDENCE, **PARTLY_KEPT}
    return [
        TableCount(table=table, rows=rows, found=found, left=after[table][1], note=notes.get(table, ""))
        for table, (rows, found) in before.items()
    ]


def find_marks(
    postgres: Postgres, scope: ErasureScope, hash_session: Callable[[str], str], cipher: TextCipher
) -> Marks:
    """The ids, names and texts of what would be erased, before it is. Raises StoreError."""
    try:
        with postgres.connect("rag_worker") as connection:
            eraser = Eraser(connection, scope, hash_session)
            return eraser.read_marks(eraser.select(), cipher)
    except psycopg.Error as error:
        raise StoreError(f"the store could not be read: {str(error).strip()}") from error


def reclaim_space(postgres: Postgres, tables: Collection[str], rewrite: bool) -> None:
    """Removes deleted rows from tables and indexes, and their values from the planner's statistics.

    These are also rows that were deleted before, such as uploads that have been ingested.
    """
    statement = SQL(REWRITE if rewrite else VACUUM)
    with postgres.connect("rag_owner") as connection:
        connection.execute("select set_config('statement_timeout', '0', false), set_config('lock_timeout', '0', false)")
        if connection.info.server_version >= CLEARING_VERSION:
            connection.execute(CLEAR_STATISTICS, {"tables": list(tables)})
        for table in tables:
            connection.execute(statement.format(table=Identifier("rag", table)))
        connection.execute("reset role")  # the statistics belong to the database's owner; others get a warning
        connection.execute(statement.format(table=Identifier("pg_catalog", "pg_statistic")))


def _choose_rules(tables: Sequence[str], scope: ErasureScope) -> Mapping[str, LiteralString]:
    """The condition of the rows to erase, by table. Raises StoreError for a table without a rule."""
    known = CONDITIONS.keys() | KEPT.keys() | EVIDENCE.keys()
    if unknown := sorted(set(tables) - known):
        raise StoreError(f"nothing is erased: erasure_rules.py has no rule for {', '.join(unknown)}")
    if scope.covers_tenant:
        return {table: NONE if table in EVIDENCE else TENANT_CONDITIONS.get(table, ALL) for table in tables}
    return {table: CONDITIONS.get(table, NONE) for table in tables}
