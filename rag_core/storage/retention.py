"""Retention: deletes the rows that users and jobs left, when they are older than the days of their kind."""

import time
from collections.abc import Iterator, Mapping
from typing import LiteralString

import psycopg
from psycopg import Connection

from rag_core.errors import StoreError
from rag_core.storage.audit_retention import keep_audit_months
from rag_core.storage.maintenance import Change
from rag_core.storage.postgres import Postgres, transaction

# They name the profile with which a collection was ingested.
LAST_COMPLETED_JOBS: LiteralString = """
select tenant, max(run) from jobs where status = 'completed' group by tenant, collection"""

DELETIONS: Mapping[str, LiteralString] = {
    "replies": """
with exposures as (
  delete from exposures where created_at < now() - make_interval(days => %(days)s)
), deleted as (
  delete from replies where created_at < now() - make_interval(days => %(days)s) returning id  -- and its feedback
)
select count(*) from deleted""",
    "conversations": """
with deleted as (
  delete from conversations where last_activity_at < now() - make_interval(days => %(days)s) returning id
)
select count(*) from deleted""",
    "uploads": """
with deleted as (
  delete from pushed_documents p using jobs j where j.tenant = p.tenant and j.id = p.job_id
    and j.finished_at < now() - make_interval(days => %(days)s) returning p.id
)
select count(*) from deleted""",
    # a job without events has 0 of them: `rag fsck` compares
    "events": """
with ended as (
  update jobs set events = 0 where finished_at < now() - make_interval(days => %(days)s) and events > 0
  returning tenant, id
), deleted as (
  delete from job_events e using ended j where e.tenant = j.tenant and e.job_id = j.id returning e.seq
)
select count(*) from deleted""",
    "jobs": f"""
with deleted as (
  delete from jobs where finished_at < now() - make_interval(days => %(days)s)
    and (tenant, run) not in ({LAST_COMPLETED_JOBS}) returning tenant, id
), items as (
  delete from job_items i using deleted j where i.tenant = j.tenant and i.job_id = j.id
), events as (
  delete from job_events e using deleted j where e.tenant = j.tenant and e.job_id = j.id
), uploads as (
  delete from pushed_documents p using deleted j where p.tenant = j.tenant and p.job_id = j.id
)
select count(*) from deleted""",  # noqa: S608 - a constant
    "rate limits": """
with deleted as (
  delete from rate_limits where measured_at < now() - make_interval(days => %(days)s) returning tenant
)
select count(*) from deleted""",
}
"""By kind, as the settings of `retention` name them, a statement that deletes old rows and returns their number."""


def delete_old_rows(postgres: Postgres, tenant: str, days: Mapping[str, int]) -> list[Change]:
    """Deletes the rows of each kind that are older than its days; 0 days keep them.

    Idle rate limits are deleted after a day. The rows are those of all tenants, or of `tenant` if the login has no
    roles of the store. Raises StoreError.
    """
    try:
        with postgres.connect("rag_worker") as connection:
            deleted = list(_delete_kinds(connection, tenant, {**days, "rate limits": 1}))
        return [*deleted, *_delete_audit_months(postgres, days.get("audit", 0))]
    except psycopg.Error as error:
        raise StoreError(f"old rows could not be deleted: {str(error).strip()}") from error


def _delete_kinds(connection: Connection, tenant: str, days: Mapping[str, int]) -> Iterator[Change]:
    for kind, statement in DELETIONS.items():
        if not days.get(kind):
            continue
        started = time.perf_counter()
        with transaction(connection, tenant):
            (count,) = connection.execute(statement, {"days": days[kind]}).fetchone() or (0,)
        if count:
            seconds = round(time.perf_counter() - started, 3)
            yield Change(action="removed", subject=f"{count} {kind}", collection="", seconds=seconds)


def _delete_audit_months(postgres: Postgres, days: int) -> Iterator[Change]:
    started = time.perf_counter()
    if days and (months := keep_audit_months(postgres, days)):
        seconds = round(time.perf_counter() - started, 3)
        yield Change(action="removed", subject=f"{len(months)} months of the audit", collection="", seconds=seconds)
