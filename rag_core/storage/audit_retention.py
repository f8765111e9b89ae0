"""The months of the audit: partitions that are created ahead, and dropped when they are old."""

from contextlib import suppress

import psycopg

from rag_core.storage.postgres import Postgres

PREPARE = "select create_audit_month(now()), create_audit_month(now() + interval '1 month')"
LIMIT_WAIT = "set local lock_timeout = '500ms'"
DROP_OLD = "select drop_audit_months(now() - make_interval(days => %(days)s))"


def keep_audit_months(postgres: Postgres, days: int) -> list[str]:
    """Creates this month and the next, and drops the months that ended more than `days` days ago, of all tenants.

    Returns the names of the dropped ones. Each tenant's chain then starts after its last dropped row. If a long reader
    such as a dump holds the audit, nothing is dropped: writers would wait behind the drop until the reader has ended.
    """
    with postgres.connect("rag_owner") as connection:
        connection.execute(PREPARE)
        with suppress(psycopg.errors.LockNotAvailable), connection.transaction():
            connection.execute(LIMIT_WAIT)
            return [str(name) for (name,) in connection.execute(DROP_OLD, {"days": days})]
    return []
