"""Jobs, their documents and their events, as every process of every host can read them.

A job that runs holds an advisory lock on each of its sources for as long as its connection lives. So a job that is
called running but holds no lock was killed, and who gets the lock may end it.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID, uuid4

import psycopg
from psycopg import Connection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from rag_core.errors import BusyError, FencedError, NotFoundError
from rag_core.storage.postgres import transaction

Action: TypeAlias = Literal["add", "change", "delete"]
INTERRUPTED = "interrupted: the job ended before it came to this document"

UNLOCK = "select pg_advisory_unlock_all()"
LOCK = "select pg_try_advisory_lock(hashtextextended(%(source)s, %(collection)s))"
# The first statement of every transaction that writes as a job, and of the one that ends it. Writers lock the rows of
# documents and then the job's, who ends a job the other way round: without this they would wait for each other.
WRITE_AS = "select pg_advisory_xact_lock_shared(hashtextextended('rag.job ' || %(job)s, 0))"
WAIT_FOR_WRITERS = "select pg_advisory_xact_lock(hashtextextended('rag.job ' || %(job)s, 0))"
KILLED = """
select id from jobs
where tenant = %(tenant)s and collection = %(collection)s and status = 'running' and sources && %(sources)s::int[]
order by id"""
END_KILLED = """
update jobs set status = 'failed', reason = 'interrupted', finished_at = now(), events = events + 1
where tenant = %(tenant)s and id = any(%(jobs)s::uuid[]) and status = 'running' returning id, events"""
END_ITEMS = """
update job_items set status = 'failed', stage = 'job', reason = %(reason)s, retryable = true, finished_at = now()
where tenant = %(tenant)s and job_id = any(%(jobs)s::uuid[]) and status = 'queued'"""
DROP_PARTS = "delete from draft_parts where tenant = %(tenant)s and job_id = any(%(jobs)s::uuid[])"
BEGIN = """
insert into jobs (tenant, id, collection, sources, profile, settings, status, same)
values (%(tenant)s, %(job)s, %(collection)s, %(sources)s::int[], %(profile)s, %(settings)s, 'running', %(same)s)
returning run"""
STAGE_ITEMS = """
create temp table if not exists staged_items (document_id uuid, uri text, action text) on commit delete rows"""
COPY_ITEMS = "copy staged_items from stdin (format binary)"
ADD_ITEMS = """
insert into job_items (tenant, job_id, document_id, uri, action, status)
select %(tenant)s, %(job)s, document_id, uri, action, 'queued' from staged_items order by document_id"""
END = """
update jobs set status = %(status)s, reason = %(reason)s, seconds = %(seconds)s, finished_at = now(),
  events = events + 1
where tenant = %(tenant)s and id = %(job)s and status = 'running' returning events"""
ADD_EVENT = """
insert into job_events (tenant, job_id, seq, stage, status, detail)
values (%(tenant)s, %(job)s, %(seq)s, %(stage)s, %(status)s, %(detail)s)"""
PROGRESS = """
select count(*) filter (where action = 'add') as added,
  count(*) filter (where action = 'change' and status <> 'same') as changed,
  count(*) filter (where status = 'deleted') as deleted,
  count(*) filter (where status = 'same') as same,
  count(*) filter (where status = 'completed') as completed,
  count(*) filter (where status = 'failed') as failed,
  count(*) filter (where status = 'failed' and retryable) as dead_letters,
  count(*) filter (where status = 'skipped') as skipped,
  count(*) filter (where status = 'quarantined') as quarantined,
  count(*) filter (where status = 'queued') as queued,
  coalesce(sum(chunks) filter (where status = 'completed'), 0)::int as chunks,
  coalesce(sum(embedded), 0)::int as embedded, coalesce(sum(removed), 0)::int as removed
from job_items where tenant = %(tenant)s and job_id = %(job)s"""
FAILURES = """
select uri, stage, reason, retryable, status from job_items
where tenant = %(tenant)s and job_id = %(job)s and status = any(%(statuses)s) order by finished_at, uri"""
# What a later run has brought to its end is none any more.
DEAD_LETTERS = """
select i.uri from job_items i join jobs j on j.tenant = i.tenant and j.id = i.job_id
where i.tenant = %(tenant)s and i.job_id = %(job)s and i.status = 'failed' and i.retryable
  and not exists (select from documents d where d.tenant = i.tenant and d.collection = j.collection
    and d.id = i.document_id and d.version > j.run and not d.retryable)
order by i.uri"""
SOME_FAILURES = """
select i.document_id, i.uri, i.stage, i.reason, i.retryable
from job_items i join jobs j on j.tenant = i.tenant and j.id = i.job_id
where i.tenant = %(tenant)s and i.job_id = %(job)s and i.status = 'failed' and i.document_id > %(after)s
  and not exists (select from documents d where d.tenant = i.tenant and d.collection = j.collection
    and d.id = i.document_id and d.access <> '{}' and not d.access && %(groups)s::text[])
order by i.document_id limit %(limit)s"""
STAGES = """
select s.key as stage, round(sum(s.value::float8)::numeric, 3)::float8 as seconds, count(*) as done
from job_items i cross join lateral jsonb_each_text(i.seconds) s
where i.tenant = %(tenant)s and i.job_id = %(job)s group by s.key order by s.key"""
STAGE_SECONDS = """
select s.key, sum(s.value::float8) from job_items i cross join lateral jsonb_each_text(i.seconds) s
where i.tenant = %(tenant)s and i.job_id = %(job)s group by s.key"""
JOBS = """
select j.id, j.run, c.name as collection, j.profile, j.status, j.reason, j.same, j.started_at, j.finished_at, j.seconds,
  j.settings,
  (select array_agg(s.uri order by s.uri) from sources s
   where s.tenant = j.tenant and s.id = any(j.sources)) as sources,
  (select count(*) from job_items i where i.tenant = j.tenant and i.job_id = j.id) as documents,
  (select count(*) from job_items i where i.tenant = j.tenant and i.job_id = j.id and i.status = 'failed') as failed
from jobs j left join collections c on c.tenant = j.tenant and c.id = j.collection
where j.tenant = %(tenant)s and (%(job)s::text is null or starts_with(j.id::text, %(job)s))
  and (%(before)s::bigint is null or j.run < %(before)s)
order by j.run desc limit %(limit)s"""
EVENTS = """
select seq, at, stage, status, detail from job_events where tenant = %(tenant)s and job_id = %(job)s and seq > %(after)s
order by seq"""


@dataclass(frozen=True, slots=True)
class Job:
    """`run` is the version of what it writes: a later job's is higher."""

    id: UUID
    run: int


def fenced(job: UUID) -> FencedError:
    """For who finds that the job may not write any more."""
    return FencedError(f"job {job} was ended: it was cancelled, or a newer run has taken over")


class Ledger:
    """One tenant's jobs, over one connection, which must live as long as a job that it begins."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self._connection = connection
        self._tenant = tenant

    def close(self) -> None:
        """Lets go of the sources now: a connection that is closed does so a moment later, when its server notices."""
        with suppress(psycopg.OperationalError):
            self._connection.execute(UNLOCK)

    def claim(self, collection: int, sources: Sequence[int]) -> None:
        """Locks the sources for this connection, and ends the jobs that were killed while they held them.

        From then on no worker of such a job can write: its transactions need the job to be running.
        BusyError if a job that lives holds one of them.
        """
        for source in sorted(sources):
            self._lock(collection, source)
        scope = self._scope(collection=collection, sources=list(sources))
        with transaction(self._connection, self._tenant):
            killed = [row[0] for row in self._connection.execute(KILLED, scope)]
            for job in killed:
                self._connection.execute(WAIT_FOR_WRITERS, {"job": job})
            ended = self._connection.execute(END_KILLED, self._scope(jobs=killed)).fetchall()
            self._give_up([id for id, _ in ended])
            for id, seq in ended:
                self._tell_end(id, seq, "failed", "interrupted")

    def reclaim(self, collection: int, sources: Sequence[int]) -> None:
        """The locks alone, for a job that goes on over a new connection. BusyError if another job has one of them."""
        for source in sorted(sources):
            self._lock(collection, source)

    def lost(self) -> bool:
        """Whether the connection is gone, and every claim with it."""
        try:
            self._connection.execute("select")
        except psycopg.OperationalError:
            return True
        return False

    def begin(
        self,
        collection: int,
        sources: Sequence[int],
        profile: str,
        settings: Mapping[str, Any],
        same: int,
        items: Sequence[tuple[UUID, str, Action]],
    ) -> Job:
        """Enters a job and every document that it has to do with; `same` counts those that it has not."""
        job = uuid4()
        values = self._scope(
            job=job,
            collection=collection,
            sources=list(sources),
            profile=profile,
            settings=Jsonb(settings),
            same=same,
        )
        with transaction(self._connection, self._tenant):
            row = self._connection.execute(BEGIN, values).fetchone()
            self._connection.execute(STAGE_ITEMS)
            with self._connection.cursor() as cursor, cursor.copy(COPY_ITEMS) as copy:
                copy.set_types(["uuid", "text", "text"])
                for item in items:
                    copy.write_row(item)
            self._connection.execute(ADD_ITEMS, values)
        return Job(id=job, run=int(row[0]) if row else 0)

    def end(self, job: UUID, status: str, reason: str = "", seconds: Mapping[str, float] | None = None) -> bool:
        """Whether it was still running: one that has ended stays as it is. What is queued fails as interrupted."""
        values = self._scope(job=job, status=status, reason=reason or None, seconds=Jsonb(seconds or {}))
        with transaction(self._connection, self._tenant):
            self._connection.execute(WAIT_FOR_WRITERS, values)
            row = self._connection.execute(END, values).fetchone()
            if row is not None:
                self._give_up([job])
                self._tell_end(job, row[0], status, reason)
        return row is not None

    def progress(self, job: UUID) -> dict[str, int]:
        """Documents by what became of them, and chunks, so far."""
        return self._rows(PROGRESS, job=job)[0]

    def failures(self, job: UUID, *statuses: str) -> list[dict[str, Any]]:
        """In the order in which they happened."""
        return self._rows(FAILURES, job=job, statuses=list(statuses))

    def some_failures(self, job: UUID, groups: Sequence[str], after: UUID, limit: int) -> list[dict[str, Any]]:
        """Of documents that members of those groups may read, in the order of their ids."""
        return self._rows(SOME_FAILURES, job=job, groups=list(groups), after=after, limit=limit)

    def stages(self, job: UUID) -> list[dict[str, Any]]:
        """Busy seconds by stage, summed over processes, and how many documents it has done."""
        return self._rows(STAGES, job=job)

    def dead_letters(self, job: UUID) -> list[str]:
        """The uris of its documents that failed for the moment only, and have not come to an end since."""
        return [str(row["uri"]) for row in self._rows(DEAD_LETTERS, job=job)]

    def stage_seconds(self, job: UUID) -> dict[str, float]:
        """Busy seconds by stage, summed over processes."""
        with transaction(self._connection, self._tenant):
            return {
                str(key): float(total) for key, total in self._connection.execute(STAGE_SECONDS, self._scope(job=job))
            }

    def jobs(self, limit: int = 20, before: int | None = None) -> list[dict[str, Any]]:
        """Newest first, from the one before that run on."""
        return self._rows(JOBS, job=None, before=before, limit=limit)

    def job(self, id: str) -> dict[str, Any]:
        """By its id or the beginning of it. NotFoundError if there is none, or more than one."""
        found = self._rows(JOBS, job=id, before=None, limit=2)
        if len(found) != 1:
            raise NotFoundError(f"there is {'more than one' if found else 'no'} job {id}; `rag jobs list` shows them")
        return found[0]

    def events(self, job: UUID, after: int = 0) -> list[dict[str, Any]]:
        return self._rows(EVENTS, job=job, after=after)

    def _tell_end(self, job: UUID, seq: int, status: str, reason: str) -> None:
        event = {"job": job, "seq": seq, "stage": "job", "status": status, "detail": Jsonb({"reason": reason})}
        self._connection.execute(ADD_EVENT, self._scope(**event))

    def _give_up(self, jobs: Sequence[UUID]) -> None:
        """What these jobs, which have ended, did not come to."""
        self._connection.execute(END_ITEMS, self._scope(jobs=jobs, reason=INTERRUPTED))
        self._connection.execute(DROP_PARTS, self._scope(jobs=jobs))

    def _lock(self, collection: int, source: int) -> None:
        key = {"source": f"rag.source {self._tenant} {source}", "collection": collection}
        row = self._connection.execute(LOCK, key).fetchone()
        if not row or not row[0]:
            raise BusyError("another job is at work on this source; `rag jobs list` shows it")

    def _rows(self, statement: str, **values: object) -> list[dict[str, Any]]:
        with (
            transaction(self._connection, self._tenant),
            self._connection.cursor(row_factory=dict_row) as cursor,
        ):
            return cursor.execute(statement.encode(), self._scope(**values)).fetchall()

    def _scope(self, **values: object) -> Mapping[str, object]:
        return {"tenant": self._tenant, **values}
