"""Encryption of stored texts anew, after a key was added or replaced."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import psycopg
from psycopg import Connection
from psycopg.rows import dict_row
from psycopg.sql import SQL, Composed, Identifier
from psycopg.types.json import Jsonb

from rag_core.encryption import TextCipher
from rag_core.errors import EncryptionError, StoreError
from rag_core.storage.conversations import LISTS, OBJECTS, TEXTS, decrypt_message, encrypt_message, title_place
from rag_core.storage.postgres import Postgres, transaction
from rag_core.storage.replies import OPINIONS, QUESTIONS

BATCH_ROWS = 500
"""Rows of a transaction, which locks them."""

# The rows after a key that have a text which the active key did not encrypt. The primary key orders them.
SELECT = """
select {columns} from {table} where {after} and ({stale}) order by {key} limit %(limit)s for update"""
UPDATE = "update {table} set {changes} where {condition}"
STALE_TEXT = "({column} <> '' and not starts_with({column}, %(prefix)s))"
STALE_LIST = "(cardinality({column}) > 0 and not starts_with({column}[1], %(prefix)s))"
STALE_OBJECT = "({column} not in ('[]', '{{}}') and not starts_with({column} #>> '{{}}', %(prefix)s))"

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedTable:
    """A table with encrypted columns. `encrypt_row` replaces them in a row of the columns below and `key`."""

    name: str
    key: Sequence[str]
    encrypt_row: Callable[[Row, TextCipher], Row]
    texts: Sequence[str] = ()
    lists: Sequence[str] = ()
    objects: Sequence[str] = ()
    others: Sequence[str] = ()

    @property
    def encrypted(self) -> tuple[str, ...]:
        return (*self.texts, *self.lists, *self.objects)

    def select(self, is_first: bool) -> Composed:
        forms = ((STALE_TEXT, self.texts), (STALE_LIST, self.lists), (STALE_OBJECT, self.objects))
        stale = [SQL(form).format(column=Identifier(name)) for form, names in forms for name in names]
        key = SQL(", ").join(map(Identifier, self.key))
        after = SQL("({}) > ({})").format(key, SQL(", ").join(SQL("%({})s").format(SQL(name)) for name in self.key))
        return SQL(SELECT).format(
            columns=SQL(", ").join(map(Identifier, (*self.key, *self.others, *self.encrypted))),
            table=Identifier(self.name),
            after=SQL("true") if is_first else after,
            stale=SQL(" or ").join(stale),
            key=key,
        )

    def update(self) -> Composed:
        def assign(names: Sequence[str]) -> list[Composed]:
            return [SQL("{} = %({})s").format(Identifier(name), SQL(name)) for name in names]

        return SQL(UPDATE).format(
            table=Identifier(self.name),
            changes=SQL(", ").join(assign(self.encrypted)),
            condition=SQL(" and ").join(assign(self.key)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reencryption:
    """The rows of a table that were encrypted with the active key, and those whose key is missing."""

    table: str
    encrypted: int
    unreadable: int


def encrypt_rows(postgres: Postgres, tenant: str, cipher: TextCipher) -> Iterator[Reencryption]:
    """Encrypts all stored texts with the active key, except for those that have it already.

    They are those of all tenants, or of `tenant` if the login has no roles of the store. Each batch is a transaction,
    so a later call continues where this one was interrupted. Raises StoreError.
    """
    try:
        with postgres.connect("rag_worker") as connection:
            for table in TABLES:
                yield _encrypt_table(connection, tenant, cipher, table)
    except psycopg.Error as error:
        raise StoreError(f"the texts could not be encrypted: {str(error).strip()}") from error


def _encrypt_table(connection: Connection, tenant: str, cipher: TextCipher, table: EncryptedTable) -> Reencryption:
    encrypted, unreadable = 0, 0
    last: Row = {}
    scope = {"prefix": cipher.prefix, "limit": BATCH_ROWS}
    while True:
        with transaction(connection, tenant), connection.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(table.select(is_first=not last), {**scope, **last}).fetchall()
            changed = list(filter(None, (_encrypt_row(row, cipher, table) for row in rows)))
            cursor.executemany(table.update(), changed)
        encrypted, unreadable = encrypted + len(changed), unreadable + len(rows) - len(changed)
        if len(rows) < BATCH_ROWS:
            return Reencryption(table=table.name, encrypted=encrypted, unreadable=unreadable)
        last = {name: rows[-1][name] for name in table.key}


def _encrypt_row(row: Row, cipher: TextCipher, table: EncryptedTable) -> Row:
    """The row with its texts encrypted anew; empty if its key is missing."""
    try:
        encrypted = table.encrypt_row(row, cipher)
    except EncryptionError:
        return {}
    return {**encrypted, **{name: Jsonb(encrypted[name]) for name in table.objects}}


def _encrypt_message(row: Row, cipher: TextCipher) -> Row:
    place = (row["tenant"], row["conversation_id"])
    return encrypt_message(decrypt_message(row, cipher, *place), cipher, *place)


def _encrypt_title(row: Row, cipher: TextCipher) -> Row:
    place = title_place(row["tenant"], row["id"])
    return {**row, "title": cipher.encrypt(cipher.decrypt(row["title"], place), place)}


def _encrypt_reply(row: Row, cipher: TextCipher) -> Row:
    return {**row, **_encrypt_texts(row, cipher, row["id"], QUESTIONS)}


def _encrypt_opinion(row: Row, cipher: TextCipher) -> Row:
    return {**row, **_encrypt_texts(row, cipher, row["answer_id"], OPINIONS)}


def _encrypt_texts(row: Row, cipher: TextCipher, answer_id: str, names: Sequence[str]) -> dict[str, str]:
    places = {name: (row["tenant"], answer_id, name) for name in names}
    return {name: cipher.encrypt(cipher.decrypt(row[name], place), place) for name, place in places.items()}


TABLES = (
    EncryptedTable(
        name="messages",
        key=("tenant", "conversation_id", "n"),
        others=("id",),
        texts=TEXTS,
        lists=LISTS,
        objects=OBJECTS,
        encrypt_row=_encrypt_message,
    ),
    EncryptedTable(name="conversations", key=("tenant", "id"), texts=("title",), encrypt_row=_encrypt_title),
    EncryptedTable(name="replies", key=("tenant", "id"), texts=QUESTIONS, encrypt_row=_encrypt_reply),
    EncryptedTable(
        name="feedback", key=("tenant", "id"), others=("answer_id",), texts=OPINIONS, encrypt_row=_encrypt_opinion
    ),
)
