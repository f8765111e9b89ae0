"""The planner's statistics. If the planner expects few rows in a collection that was just loaded, it chooses joins that
compare each row with each other row. The time of a search then grows with the square of the collection's size."""

import time
from collections.abc import Collection, Mapping
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier

from rag_core.storage.postgres import transaction

# The tables of the schema. The second column is true for tables that autovacuum would analyze within minutes.
TABLES = """
select s.relname, s.n_mod_since_analyze > greatest(200, 0.1 * c.reltuples), c.reltuples, exists (
  select from pg_attribute a where a.attrelid = s.relid and a.attname = 'collection')
from pg_stat_user_tables s join pg_class c on c.oid = s.relid where s.schemaname = 'rag' order by s.relname"""
# Autovacuum waits until a tenth of the table has changed. A new collection among large ones is never that much, so
# these statements compare the planner's estimate with the number of rows.
COLLECTION_ROWS = "select from {table} where tenant = %(tenant)s and collection = %(collection)s"
EXPLAIN = "explain (format json) {rows}"
COUNT = "select count(*) from ({rows} limit %(many)s) limited_rows"
ANALYZE = "analyze (skip_locked) {table}"

LOW_ESTIMATE, MANY_ROWS = 100, 1_000
"""A collection is underestimated if the planner expects fewer rows than the first, but at least the second exist."""

MIN_SHARE = 0.001
"""A collection with a smaller share of a table is not checked. Statistics sample 30,000 rows, which can miss a smaller
collection altogether, so analyzing the table again would not help."""


def analyze_stale_tables(connection: Connection, tenant: str, collections: Collection[int]) -> dict[str, float]:
    """Analyzes tables that have changed much, or in which the planner underestimates one of these collections.

    Returns the seconds by table, in the order of their names. The connection must own the tables, and must not be in a
    transaction.
    """
    with transaction(connection, tenant):
        stale = [
            str(table)
            for table, changed, size, has_collections in connection.execute(TABLES).fetchall()
            if changed
            or (has_collections and any(_is_underestimated(connection, table, size, tenant, id) for id in collections))
        ]
    return {table: analyze_table(connection, table) for table in stale}


def analyze_table(connection: Connection, table: str) -> float:
    """Returns the seconds taken. Skips the table if another process analyzes it or builds an index on it."""
    started = time.perf_counter()
    connection.execute(SQL(ANALYZE).format(table=Identifier("rag", table)))
    return round(time.perf_counter() - started, 3)


def _is_underestimated(connection: Connection, table: str, size: float, tenant: str, collection: int) -> bool:
    many = max(MANY_ROWS, round(size * MIN_SHARE))
    scope = {"tenant": tenant, "collection": collection, "many": many}
    rows = SQL(COLLECTION_ROWS).format(table=Identifier("rag", table))
    plan = _value(connection, SQL(EXPLAIN).format(rows=rows), scope)
    expected = plan[0]["Plan"]["Plan Rows"]
    return bool(expected < LOW_ESTIMATE and _value(connection, SQL(COUNT).format(rows=rows), scope) == many)


def _value(connection: Connection, statement: Composed, scope: Mapping[str, Any]) -> Any:
    ((value,),) = connection.execute(statement, scope).fetchall()
    return value
