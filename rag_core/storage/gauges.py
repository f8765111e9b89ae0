"""Counts over the rows of all tenants, for gauges. They are read every few seconds, so no query reads a large table."""

from collections.abc import Mapping

from rag_core.storage.postgres import Postgres, translate_statement_errors
from rag_core.telemetry.metrics import OpenJobs, QueueKey, StoreState, TableSize

# A running job without a lease belongs to `rag ingest`. It has no age: its process can be without metrics or dead.
OPEN_JOBS = """
select tenant, status, count(*), coalesce(extract(epoch from now() - min(
  case when status = 'queued' then created_at when lease_until is not null then started_at end))::float8, 0)
from jobs where status in ('queued', 'running') group by tenant, status order by tenant, status"""
FAILED_JOBS = """
select tenant, count(*) from jobs where status = 'failed' and finished_at > now() - interval '1 day'
group by tenant order by tenant"""
LISTING_AGES = """
select tenant, extract(epoch from now() - max(listed_at))::float8 from sources where listed_at is not null
group by tenant order by tenant"""
# The size of a table can only be read without an exclusive lock on the table or an index. Tables with one are left out,
# because the poll would wait, and report the store as unavailable in the end. A table that is dropped meanwhile has no
# size.
TABLES = """
select relname, n_live_tup, n_dead_tup, coalesce(pg_total_relation_size(relid), 0) from pg_stat_user_tables
where schemaname = 'rag' and relid not in (
  select coalesce(i.indrelid, l.relation) from pg_locks l left join pg_index i on i.indexrelid = l.relation
  where l.relation is not null and l.mode = 'AccessExclusiveLock')
order by relname"""
SERVER = """
select pg_database_size(current_database()), (select sum(numbackends)::int from pg_stat_database),
  current_setting('max_connections')::int"""


def open_jobs(postgres: Postgres) -> Mapping[QueueKey, OpenJobs]:
    """The jobs that have not ended, by tenant and status. Statuses without jobs are missing.

    A login without the store's roles sees no rows. Raises StoreError if the store cannot be read.
    """
    with translate_statement_errors(), postgres.connect("rag_worker") as connection:
        rows = connection.execute(OPEN_JOBS).fetchall()
    return {(tenant, status): OpenJobs(count=count, oldest=oldest) for tenant, status, count, oldest in rows}


def store_state(postgres: Postgres) -> StoreState:
    """The sizes of the store, and the state of its tenants' syncs. A table that is locked exclusively is missing.

    Raises StoreError if the store cannot be read.
    """
    with translate_statement_errors(), postgres.connect("rag_worker") as connection:
        tables = connection.execute(TABLES).fetchall()
        size, connections, limit = connection.execute(SERVER).fetchall()[0]
        return StoreState(
            failed_jobs=dict(connection.execute(FAILED_JOBS).fetchall()),
            listing_ages=dict(connection.execute(LISTING_AGES).fetchall()),
            tables={name: TableSize(rows=rows, dead_rows=dead, bytes=size) for name, rows, dead, size in tables},
            bytes=size,
            connections=connections,
            connection_limit=limit,
        )
