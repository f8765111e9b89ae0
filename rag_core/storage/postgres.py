"""Access to the store: its DSN, the database roles, and transactions of one tenant."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import psycopg
import stamina
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from rag_core.errors import ConfigError, RagError, StoreError
from rag_core.secret_references import is_reference, read_secret
from rag_core.storage import embedded, schema
from rag_core.storage.transport import check_transport

Role: TypeAlias = Literal["rag_app", "rag_worker", "rag_owner"]

OPTIONS = (
    "-c search_path=rag,public -c plan_cache_mode=force_custom_plan"
    " -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
)
"""Custom plans are forced because Postgres switches to a generic plan after ten executions, and a generic plan does not
use the partial vector index. Keep-alives release the sources of a job within 25 s after its host disappeared."""

DEFAULT_TIMEOUTS = {
    "connect_timeout": "10",
    "tcp_user_timeout": "15000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}
"""Client-side timeouts for a host that disappears. The operating system would wait 15 minutes or longer. A DSN
overrides them."""

ASSUME_ROLE = """
select set_config('role', rolname, false) from pg_roles
where rolname = %(role)s and pg_has_role(session_user, oid, 'member')"""
SET_SNAPSHOT = "set transaction isolation level repeatable read read only"
SET_TENANT = "select set_config('app.tenant', %(tenant)s, true)"
SET_CALLER = """
select set_config('app.tenant', %(tenant)s, true), set_config('app.groups', %(groups)s::text[]::text, true)"""
# A role that was created after the last migration has no rights yet: it is not used.
ASSUME_READER = """
select set_config('role', rolname, %(local)s) from pg_roles
where rolname = 'rag_reader' and pg_has_role(session_user, oid, 'member')
  and has_table_privilege(oid, 'rag.documents', 'select')"""
LIMIT_TIME = "select set_config('statement_timeout', %(timeout_ms)s::text, true)"


NOT_A_DSN = "(not a DSN)"


@dataclass(frozen=True, slots=True)
class Postgres:
    """A store with the newest schema. It is small and picklable: workers receive it, and open their own connections.

    `dsn` can be a reference to the DSN: it is read for each connection, so that a new password is used without a
    restart. `folder` is the folder of an embedded server, or empty.
    """

    dsn: str = field(repr=False)
    folder: str = ""

    @classmethod
    def open(cls, url: str) -> "Postgres":
        """Opens `embedded` or a DSN, and migrates its schema.

        Raises StoreError if it cannot be reached or started, or needs a newer program.
        """
        store = cls.open_unmigrated(url)
        store.migrate()
        return store

    @classmethod
    def open_unmigrated(cls, url: str) -> "Postgres":
        """Opens a store of any schema version, even one without a schema. Starts an embedded server.

        Raises ConfigError if the URL is neither, or if a connection to it could be unencrypted, and StoreError if the
        store cannot be reached or started.
        """
        read = _read_url(url)
        folder = embedded.data_folder() if read == "embedded" else None
        if not folder:
            check_transport(read, os.environ)
        with _translate_errors(url):
            dsn = embedded.start(folder) if folder else str(url)
        return cls(dsn, str(folder or ""))

    def migrate(self, report_progress: schema.MigrationListener = lambda *_: None) -> None:
        """Applies the missing migrations. Raises StoreError if one fails, or if the store needs a newer program."""
        with _translate_errors(self.dsn):
            try:
                schema.migrate(self.read_dsn(), report_progress)
            except psycopg.OperationalError:
                if not self.folder:
                    raise
                # the server was killed since it was started
                schema.migrate(embedded.start(Path(self.folder)), report_progress)

    def read_dsn(self) -> str:
        """The DSN with timeouts, read anew if `dsn` is a reference. Raises ConfigError if it cannot be read."""
        return _with_timeouts(_read_url(self.dsn))

    def connect(self, role: Role = "rag_app") -> Connection:
        """Opens a connection that commits each statement unless a transaction is open.

        Restarts an embedded server that has died. Raises StoreError if the store cannot be reached.
        """
        try:
            connection = self._connect()
            connection.execute(ASSUME_ROLE, {"role": role})
        except psycopg.OperationalError as error:
            raise StoreError(f"cannot reach the store at {redact_dsn(self.dsn)}: {error}") from error
        return connection

    def _connect(self) -> Connection:
        try:
            return psycopg.connect(self.read_dsn(), options=OPTIONS, autocommit=True)
        except psycopg.OperationalError:
            if not self.folder:
                raise
            embedded.start(Path(self.folder))
            return psycopg.connect(self.read_dsn(), options=OPTIONS, autocommit=True)


@contextmanager
def _translate_errors(url: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise StoreError(f"cannot use the store at {redact_dsn(url)}: {error}") from error


def _read_url(url: str) -> str:
    """The URL, or the one that it refers to. Raises ConfigError if it is no DSN, without more of it than its scheme."""
    plain = read_secret(url, "store.url")
    if redact_dsn(plain) == NOT_A_DSN:
        scheme, separator, _ = plain.partition("://")
        got = f", got {scheme!r:.20}…" if separator else ""
        raise ConfigError(f"store.url must be `embedded` or a DSN such as postgresql://user@host/database{got}")
    return plain


def _with_timeouts(dsn: str) -> str:
    """Adds the default timeouts that the DSN does not set."""
    parameters = conninfo_to_dict(dsn)
    return make_conninfo(dsn, **{key: value for key, value in DEFAULT_TIMEOUTS.items() if key not in parameters})


@contextmanager
def transaction(connection: Connection, tenant: str) -> Iterator[None]:
    """Opens a transaction in which only the tenant's rows are visible. Commits it unless the block raises.

    Raises StoreError if the connection is lost.
    """
    with translate_connection_errors(), connection.transaction():
        connection.execute(SET_TENANT, {"tenant": tenant})
        yield


@contextmanager
def snapshot_transaction(connection: Connection, tenant: str) -> Iterator[None]:
    """Opens a read-only transaction whose statements all see the store as it was at the first of them.

    Transactions within it are savepoints, which see the same state. Raises StoreError if the connection is lost.
    """
    with translate_connection_errors(), connection.transaction():
        connection.execute(SET_SNAPSHOT)
        connection.execute(SET_TENANT, {"tenant": tenant})
        yield


@contextmanager
def read_transaction(connection: Connection, tenant: str, groups: Sequence[str]) -> Iterator[None]:
    """Opens a transaction that sees no contents of documents that members of `groups` may not read."""
    with transaction(connection, tenant):
        connection.execute(SET_CALLER, {"tenant": tenant, "groups": list(groups)})
        connection.execute(ASSUME_READER, {"local": True})
        yield


@contextmanager
def translate_connection_errors() -> Iterator[None]:
    """Raises StoreError if the connection is lost in the block."""
    try:
        yield
    except (psycopg.errors.ProgramLimitExceeded, psycopg.errors.DeadlockDetected):
        raise  # subclasses of OperationalError, but caused by what was written: the store is reachable
    except psycopg.OperationalError as error:
        raise StoreError(f"lost the connection to the store: {error}") from error


@contextmanager
def translate_statement_errors() -> Iterator[None]:
    """Raises StoreError if the connection is lost in the block, or a statement fails, such as for lack of a right."""
    try:
        with translate_connection_errors():
            yield
    except psycopg.Error as error:
        raise StoreError(f"the store refused a statement: {error}") from error


def retry_attempts(timeout: float, *errors: type[RagError]) -> Iterable[stamina.Attempt]:
    """Yields attempts until the `with` block of an attempt raises none of these errors, or `timeout` seconds are over.

    The last attempt raises its error. With a timeout of 0 there is one attempt.
    """
    attempts = None if timeout else 1
    return stamina.retry_context(errors, attempts=attempts, timeout=timeout or None, wait_initial=0.2, wait_max=5.0)


def redact_dsn(url: str) -> str:
    """The parts of a DSN that messages can contain: host, port, database and user, or a reference to the DSN."""
    if url == "embedded" or is_reference(url):
        return str(url)
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return NOT_A_DSN
    return " ".join(f"{key}={value}" for key, value in parameters.items() if key in ("host", "port", "dbname", "user"))
