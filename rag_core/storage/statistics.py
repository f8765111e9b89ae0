"""What the planner believes of the tables. Where it takes what was just loaded for little or nothing, it compares each
row of a collection with each, and a search takes time that grows with the square of it."""

import time
from collections.abc import Collection, Mapping
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier

from rag_core.storage.postgres import transaction

# What autovacuum comes to within minutes.
TABLES = """
select s.relname, s.n_mod_since_analyze > greatest(200, 0.1 * c.reltuples), c.reltuples, exists (
  select from pg_attribute a where a.attrelid = s.relid and a.attname = 'collection')
from pg_stat_user_tables s join pg_class c on c.oid = s.relid where s.schemaname = 'rag' order by s.relname"""
# Of a new collection among large ones a tenth is never reached, and autovacuum never comes.
OWN_ROWS = "select from {table} where tenant = %(tenant)s and collection = %(collection)s"
EXPLAIN = "explain (format json) {rows}"
COUNT = "select count(*) from ({rows} limit %(many)s) counted"
ANALYZE = "analyze (skip_locked) {table}"

FEW_ROWS, MANY_ROWS = 100, 1_000
"""Of a collection in a table: the planner is wrong where it expects fewer than the first, and the second are there."""

LEAST_SHARE = 0.001
"""Of a table: a collection that has less of it may be in none of the 30,000 rows that statistics are of."""


def analyze_stale(connection: Connection, tenant: str, collections: Collection[int]) -> dict[str, float]:
    """The tables that have changed much, or of which the planner does not know what one of these collections has.

    Seconds by table, in the order of their names. The connection owns the tables, and is in no transaction.
    """
    with transaction(connection, tenant):
        stale = [
            str(table)
            for table, changed, size, has_collections in connection.execute(TABLES).fetchall()
            if changed or (has_collections and any(_unknown(connection, table, size, tenant, id) for id in collections))
        ]
    return {table: analyze(connection, table) for table in stale}


def analyze(connection: Connection, table: str) -> float:
    """How many seconds it took. Not while another process is at it, or builds an index of that table."""
    began = time.perf_counter()
    connection.execute(SQL(ANALYZE).format(table=Identifier("rag", table)))
    return round(time.perf_counter() - began, 3)


def _unknown(connection: Connection, table: str, size: float, tenant: str, collection: int) -> bool:
    """Whether the planner takes many rows of a collection for few."""
    many = max(MANY_ROWS, round(size * LEAST_SHARE))
    scope = {"tenant": tenant, "collection": collection, "many": many}
    rows = SQL(OWN_ROWS).format(table=Identifier("rag", table))
    plan = _value(connection, SQL(EXPLAIN).format(rows=rows), scope)
    expected = plan[0]["Plan"]["Plan Rows"]
    return bool(expected < FEW_ROWS and _value(connection, SQL(COUNT).format(rows=rows), scope) == many)


def _value(connection: Connection, statement: Composed, scope: Mapping[str, Any]) -> Any:
    ((value,),) = connection.execute(statement, scope).fetchall()
    return value
