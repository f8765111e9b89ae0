"""Reading the audit of one tenant: a list, an export, and the check of its chain."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TextIO

from psycopg import Connection, IsolationLevel
from psycopg.rows import class_row, dict_row

from rag_core.errors import UsageError
from rag_core.storage.audit import Change, record
from rag_core.storage.audit_chain import BEGINNING, AuditRow, BrokenRow, ChainEnd, find_lost_end, follow_chain
from rag_core.storage.postgres import transaction

COLUMNS = """a.tenant, a.n, to_char(a.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at, a.content,
  encode(a.hash, 'hex') as hash"""
COLUMN_TYPES = {"tenant": str, "n": int, "at": str, "content": str, "hash": str}
LIST = f"""
select {COLUMNS}, u.user_id from audit a
left join audit_users u on u.tenant = a.tenant and u.pseudonym = a.content::jsonb ->> 'user'
where a.tenant = %(tenant)s and (%(since)s::timestamptz is null or a.at >= %(since)s)
  and (%(user)s::text is null or u.user_id = %(user)s)
  and (%(operation)s::text is null or a.content::jsonb ->> 'operation' = %(operation)s)
order by a.n desc limit %(limit)s"""  # noqa: S608 - a constant
ROWS = f"select {COLUMNS} from audit a where a.tenant = %(tenant)s order by a.n, a.at"  # noqa: S608 - a constant
HEAD = """
select n, encode(hash, 'hex') as hash, start_n, encode(start_hash, 'hex') as start_hash
from audit_heads where tenant = %(tenant)s"""
# Of a row, or of the last one that retention has dropped.
HASH = """
select encode(hash, 'hex') from audit where tenant = %(tenant)s and n = %(n)s
union all select encode(start_hash, 'hex') from audit_heads where tenant = %(tenant)s and start_n = %(n)s"""
KEEP_MONTHS = "lock table audit in access share mode"
USERS = "select pseudonym, user_id from audit_users where tenant = %(tenant)s"
# With the first row of the user.
WRONG_USER = """
select u.user_id, coalesce(min(a.n), 0) as n from audit_users u
left join audit a on a.tenant = u.tenant and a.content::jsonb ->> 'user' = u.pseudonym
where u.tenant = %(tenant)s and u.pseudonym <> audit_pseudonym(u.salt, u.user_id)
group by u.user_id order by n limit 1"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of a check. `start` and `end` enclose the intact rows; `broken` is None if all are intact.

    `end` can be kept elsewhere, for a later check: see `Audit.verify`.
    """

    start: ChainEnd
    end: ChainEnd
    broken: BrokenRow | None = None


class Audit:
    """The audit of one tenant, over one connection. Each method records that the audit was read."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self._connection, self._tenant = connection, tenant

    def list_entries(
        self, user: str | None = None, operation: str | None = None, since: datetime | None = None, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Rows, newest first: number, time, hash, user, and the members of the content.

        The user is the pseudonym if the person was erased.
        """
        self._record("audit.list")
        scope = {"tenant": self._tenant, "user": user, "operation": operation, "since": since, "limit": limit}
        with transaction(self._connection, self._tenant), self._connection.cursor(row_factory=dict_row) as cursor:
            return [_describe_row(row) for row in cursor.execute(LIST.encode(), scope).fetchall()]

    def verify(self, known: ChainEnd = BEGINNING) -> Verification:
        """Checks all rows, the end of the chain, and that pseudonyms belong to their users.

        `known` is the end at an earlier check. If it is still a row of the chain, no row before it was changed since,
        not even by somebody who computed all hashes again. Raises UsageError if retention has dropped that row.
        """
        self._record("audit.verify")
        with self._snapshot():
            start, head = self._read_ends()
            if BEGINNING.n < known.n < start.n:
                raise UsageError(f"row {known.n} cannot be checked: rows up to {start.n} were dropped by retention")
            end, broken = follow_chain(self._stream_rows(), start)
            broken = broken or find_lost_end(end, head) or self._find_other_row(known) or self._find_wrong_user()
        return Verification(start=start, end=end, broken=broken)

    def _find_other_row(self, known: ChainEnd) -> BrokenRow | None:
        """The known row, if the chain has another one in its place."""
        scope = {"tenant": self._tenant, "n": known.n}
        if known == BEGINNING or self._connection.execute(HASH, scope).fetchone() == (known.hash,):
            return None
        return BrokenRow(n=known.n, reason="it is not the row of the earlier check: a row up to it was changed")

    def _find_wrong_user(self) -> BrokenRow | None:
        """The first row of a user whose name was put in the place of another."""
        row = self._connection.execute(WRONG_USER, {"tenant": self._tenant}).fetchone()
        return BrokenRow(n=row[1], reason=f"its user is not {row[0]!r}, whose name was put there") if row else None

    def export(self, file: TextIO) -> int:
        """Writes all rows as JSON lines, oldest first, and returns their number.

        `previous` is the hash of the row before. `user_id` is not part of the hash; it is empty if the person was
        erased.
        """
        self._record("audit.export")
        count = 0
        with self._snapshot():
            previous, _ = self._read_ends()
            users: dict[str, str] = dict(self._connection.execute(USERS, {"tenant": self._tenant}).fetchall())
            for row in self._stream_rows():
                user = users.get(json.loads(row.content)["user"], "")
                line = {**asdict(row), "previous": previous.hash, "user_id": user}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                previous, count = ChainEnd(n=row.n, hash=row.hash), count + 1
        return count

    def _record(self, operation: str) -> None:
        with transaction(self._connection, self._tenant):
            record(self._connection, self._tenant, Change(operation=operation, kind="audit"))

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """A transaction in which all statements see the same rows, whoever writes meanwhile.

        The lock is the first statement: a month that is dropped after the snapshot would seem to be lost.
        """
        self._connection.isolation_level = IsolationLevel.REPEATABLE_READ
        try:
            with self._connection.transaction():
                self._connection.execute(KEEP_MONTHS)
                with transaction(self._connection, self._tenant):
                    yield
        finally:
            self._connection.isolation_level = None

    def _read_ends(self) -> tuple[ChainEnd, ChainEnd]:
        """The last row that retention has deleted, and the last row."""
        row = self._connection.execute(HEAD, {"tenant": self._tenant}).fetchone() or (0, "", 0, "")
        return ChainEnd(n=row[2], hash=row[3]), ChainEnd(n=row[0], hash=row[1])

    def _stream_rows(self) -> Iterator[AuditRow]:
        """Reads the rows in portions: a tenant can have many millions."""
        with self._connection.cursor("audit_rows", row_factory=class_row(AuditRow)) as cursor:
            cursor.itersize = 2_000
            cursor.execute(ROWS.encode(), {"tenant": self._tenant})
            yield from cursor


def verify_export(lines: TextIO) -> Verification:
    """Checks an exported file alone: its rows follow each other. Raises UsageError for a line that is no such row."""
    first = next((line for line in lines if line.strip()), "")
    if not first:
        raise UsageError("an export of the audit must have at least one row, got an empty file")
    row, previous = _parse_line(first)
    start = ChainEnd(n=row.n - 1, hash=previous)
    end, broken = follow_chain((_parse_line(line)[0] for line in (first, *lines)), start)
    return Verification(start=start, end=end, broken=broken)


def _parse_line(line: str) -> tuple[AuditRow, str]:
    try:
        fields = json.loads(line)
        row = AuditRow(**{name: fields[name] for name in COLUMN_TYPES})
        if any(type(fields[name]) is not kind for name, kind in COLUMN_TYPES.items()):
            raise TypeError
        bytes.fromhex(fields["previous"] + row.hash)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"not a row of `rag audit export`: {line[:80]!r}") from error
    return row, fields["previous"]


def _describe_row(row: Mapping[str, Any]) -> dict[str, Any]:
    content = json.loads(row["content"])
    user = row["user_id"] or content["user"]
    return {"n": row["n"], "at": row["at"], "hash": row["hash"], **content, "user": user}
