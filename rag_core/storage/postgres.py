"""How the store is reached: a DSN, the roles behind it, transactions that belong to a tenant."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import psycopg
import stamina
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from rag_core.errors import RagError, StoreError
from rag_core.storage import embedded, schema

Role: TypeAlias = Literal["rag_app", "rag_worker", "rag_owner"]

OPTIONS = (
    "-c search_path=rag,public -c plan_cache_mode=force_custom_plan"
    " -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
)
"""Custom plans, because a generic one drops the partial vector index after ten executions. Keep-alives, so that a host
that vanished holds its job's sources for no longer than 25 s."""

PATIENCE = {
    "connect_timeout": "10",
    "tcp_user_timeout": "15000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}
"""With a host that vanishes without a word: the system's own is 15 minutes and more. What a DSN says itself counts."""

ASSUME_ROLE = """
select set_config('role', rolname, false) from pg_roles
where rolname = %(role)s and pg_has_role(session_user, oid, 'member')"""
SET_TENANT = "select set_config('app.tenant', %(tenant)s, true)"


@dataclass(frozen=True, slots=True)
class Postgres:
    """A store that is migrated. Small and picklable: workers get this, and connect by themselves.

    `folder` is the embedded server's, else empty.
    """

    dsn: str
    folder: str = ""

    @classmethod
    def open(cls, url: str) -> "Postgres":
        """`embedded`, or a DSN. StoreError if it cannot be reached or started."""
        store = cls.as_it_is(url)
        with _using(url):
            schema.migrate(store.dsn)
        return store

    @classmethod
    def as_it_is(cls, url: str) -> "Postgres":
        """As `open`, of whatever version its schema is, or without one. An embedded one is started."""
        folder = embedded.data_folder() if url == "embedded" else None
        with _using(url):
            dsn = embedded.start(folder) if folder else _patient(url)
        return cls(dsn, str(folder or ""))

    def connect(self, role: Role = "rag_app") -> Connection:
        """A connection that commits each statement unless a transaction is open. Starts a dead embedded server."""
        try:
            connection = self._connect()
            connection.execute(ASSUME_ROLE, {"role": role})
        except psycopg.OperationalError as error:
            raise StoreError(f"cannot reach the store at {shown(self.dsn)}: {error}") from error
        return connection

    def _connect(self) -> Connection:
        try:
            return psycopg.connect(self.dsn, options=OPTIONS, autocommit=True)
        except psycopg.OperationalError:
            if not self.folder:
                raise
            embedded.start(Path(self.folder))
            return psycopg.connect(self.dsn, options=OPTIONS, autocommit=True)


@contextmanager
def _using(url: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise StoreError(f"cannot use the store at {shown(url)}: {error}") from error


def _patient(dsn: str) -> str:
    said = conninfo_to_dict(dsn)
    return make_conninfo(dsn, **{key: value for key, value in PATIENCE.items() if key not in said})


@contextmanager
def transaction(connection: Connection, tenant: str) -> Iterator[None]:
    """The tenant's rows, and no others, until the block ends; then all of it is committed, or nothing.

    StoreError if the connection is lost.
    """
    try:
        with connection.transaction():
            connection.execute(SET_TENANT, {"tenant": tenant})
            yield
    except (psycopg.errors.ProgramLimitExceeded, psycopg.errors.DeadlockDetected):
        raise  # operational errors by name, but about what was written: the store is there
    except psycopg.OperationalError as error:
        raise StoreError(f"lost the store: {error}") from error


def while_away(patience: float, *errors: type[RagError]) -> Iterable[stamina.Attempt]:
    """Attempts, to be made in a `with` each, until one does not raise these errors or `patience` seconds are over."""
    attempts = None if patience else 1
    return stamina.retry_context(errors, attempts=attempts, timeout=patience or None, wait_initial=0.2, wait_max=5.0)


def shown(url: str) -> str:
    """A DSN as it may stand in a message: without its password."""
    if url == "embedded":
        return url
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return "(not a DSN)"
    return " ".join(f"{key}={value}" for key, value in parts.items() if key in ("host", "port", "dbname", "user"))
