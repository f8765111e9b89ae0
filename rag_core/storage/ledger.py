"""The ledger: jobs, their documents and their events, stored so that every process of every host can read them.

A running job holds an advisory lock on each of its sources while its connection is open. A job with status `running`
but without locks was therefore killed. The next process that locks the source ends it; a job from the queue is queued
again.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID, uuid4

import psycopg
from anyio import to_thread
from psycopg import Connection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from rag_core.errors import BusyError, FencedError, NotFoundError
from rag_core.storage.audit import Change, record
from rag_core.storage.postgres import Postgres, read_transaction, transaction, translate_connection_errors

Action: TypeAlias = Literal["add", "change", "delete"]
INTERRUPTED = "interrupted: the job ended before it came to this document"
CANCELLED = "cancelled before the job came to this document"

UNLOCK = "select pg_advisory_unlock_all()"
LOCK = "select pg_try_advisory_lock(hashtextextended(%(source)s, %(collection)s))"
# Every transaction that writes for a job begins with JOIN_WRITERS. Every transaction that ends or restarts a job begins
# with WAIT_FOR_WRITERS. Writers lock document rows and then the job's row, but ending a job locks them in the opposite
# order: without this lock the two would deadlock.
JOIN_WRITERS = "select pg_advisory_xact_lock_shared(hashtextextended('rag.job ' || %(job)s, 0))"
WAIT_FOR_WRITERS = "select pg_advisory_xact_lock(hashtextextended('rag.job ' || %(job)s, 0))"
FIND_KILLED = """
select id from jobs
where tenant = %(tenant)s and collection = %(collection)s and status = 'running' and sources && %(sources)s::int[]
  and id <> %(job)s order by id"""
END_KILLED = """
update jobs set status = 'failed', reason = 'interrupted', finished_at = now(), events = events + 1
where tenant = %(tenant)s and id = any(%(jobs)s::uuid[]) and status = 'running' and request is null
returning id, events"""
QUEUE_KILLED = """
update jobs set status = 'queued', fence = fence + 1, lease_until = null, run_at = now(), events = events + 1
where tenant = %(tenant)s and id = any(%(jobs)s::uuid[]) and status = 'running' and request is not null
returning id, events"""
END_ITEMS = """
update job_items set status = %(status)s, stage = 'job', reason = %(reason)s, retryable = true, finished_at = now()
where tenant = %(tenant)s and job_id = any(%(jobs)s::uuid[]) and status = 'queued'"""
# A body is kept while a retry can need it: its document failed temporarily, or the job ended before reaching it. Items
# are retryable in both cases.
DROP_BODIES = """
delete from pushed_documents p using jobs j
where p.tenant = %(tenant)s and p.job_id = any(%(jobs)s::uuid[]) and j.tenant = p.tenant and j.id = p.job_id
  and not exists (select from job_items i where i.tenant = p.tenant and i.job_id = p.job_id and i.uri = p.uri
    and i.retryable)
  and (j.status = 'completed' or exists (select from job_items i
    where i.tenant = p.tenant and i.job_id = p.job_id and i.uri = p.uri))"""
DROP_PARTS = "delete from draft_parts where tenant = %(tenant)s and job_id = any(%(jobs)s::uuid[])"
BEGIN = """
insert into jobs (tenant, id, collection, sources, profile, settings, status, same, started_at, events)
values (%(tenant)s, %(job)s, %(collection)s, %(sources)s::int[], %(profile)s, %(settings)s, 'running', %(same)s, now(),
  3)
on conflict (tenant, id) do update set sources = excluded.sources, same = excluded.same
returning run, xmax = 0 as is_new"""
START = """
update jobs set status = 'running', started_at = coalesce(started_at, now()), events = events + 2
where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status in ('queued', 'running')
returning events, attempts"""
# For a job that was begun before: finished documents keep their state, the others are deleted and added again.
DROP_QUEUED = "delete from job_items where tenant = %(tenant)s and job_id = %(job)s and status = 'queued'"
# A listing must have a higher run than older listings of the same sources, and pushed documents must be written in the
# order in which they arrived. The job therefore gets a new run if a job with a higher run has one of its listed
# sources, or if an earlier job with pushed documents has got a higher run in this way.
RENEW_RUN = """
update jobs j set run = default where j.tenant = %(tenant)s and j.id = %(job)s and (exists (select from jobs newer
  where newer.tenant = j.tenant and newer.run > j.run and newer.collection = %(collection)s
    and newer.sources && %(listed)s::int[])
or j.pushes and exists (select from jobs earlier where earlier.tenant = j.tenant and earlier.run > j.run
  and earlier.pushes and earlier.collection = %(collection)s
  and (earlier.created_at, earlier.id) < (j.created_at, j.id)))"""
TAKE_OVER = """
update jobs set same = case when collection is null then %(same)s else same end, collection = %(collection)s,
  sources = %(sources)s::int[], size = %(size)s, events = events + 2
where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status = 'running' returning run, events"""
ENDED_ITEMS = """
select document_id from job_items where tenant = %(tenant)s and job_id = %(job)s and status <> 'queued'"""
STAGE_ITEMS = """
create temp table if not exists staged_items (document_id uuid, uri text, action text) on commit delete rows"""
COPY_ITEMS = "copy staged_items from stdin (format binary)"
ADD_ITEMS = """
insert into job_items (tenant, job_id, document_id, uri, action, status)
select %(tenant)s, %(job)s, document_id, uri, action, 'queued' from staged_items order by document_id
on conflict (tenant, job_id, document_id) do nothing"""
END = """
update jobs set status = %(status)s, reason = %(reason)s, seconds = %(seconds)s, finished_at = now(),
  started_at = coalesce(started_at, now()), lease_until = null,
  events = events + case when %(status)s = 'completed' then 2 else 1 end
where tenant = %(tenant)s and id = %(job)s and status in ('queued', 'running')
  and (fence = %(fence)s or %(fence)s = -1) returning events"""
IS_OPEN = """
select from jobs where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status in ('queued', 'running')"""
HAS_COMPLETED = """
select from jobs where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status = 'completed'"""
NUMBER_STAGE_EVENTS = """
update jobs set events = events + 2
where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status = 'running' returning events"""
ADD_EVENT = """
insert into job_events (tenant, job_id, seq, stage, status, detail)
values (%(tenant)s, %(job)s, %(seq)s, %(stage)s, %(status)s, %(detail)s)
returning pg_notify('rag_events', %(job)s::text)"""
DATE_EVENT = """
update job_events set at = %(at)s where tenant = %(tenant)s and job_id = %(job)s and seq = %(seq)s"""
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
  count(*) filter (where status = 'cancelled') as cancelled,
  count(*) filter (where status = 'queued') as queued,
  coalesce(sum(chunks) filter (where status = 'completed'), 0)::int as chunks,
  coalesce(sum(embedded), 0)::int as embedded, coalesce(sum(removed), 0)::int as removed
from job_items where tenant = %(tenant)s and job_id = %(job)s"""
# A recipe has its label between the first blank and the limits: rag_core.ingestion.recipe.
COUNT_LABELS = """
select label, count(*) from job_items i join jobs j on j.tenant = i.tenant and j.id = i.job_id
join documents d on d.tenant = i.tenant and d.collection = j.collection and d.id = i.document_id
cross join lateral substring(split_part(d.recipe, '|', 1) from ' (.*)') label
where i.tenant = %(tenant)s and i.job_id = %(job)s and i.status = 'completed' and label is not null
group by label order by label"""
FAILURES = """
select uri, stage, reason, retryable, status from job_items
where tenant = %(tenant)s and job_id = %(job)s and status = any(%(statuses)s) order by finished_at, uri"""
# A document that a later run has completed or failed permanently is no longer a dead letter. Cancelled documents count.
DEAD_LETTERS = """
select i.uri from job_items i join jobs j on j.tenant = i.tenant and j.id = i.job_id
where i.tenant = %(tenant)s and i.job_id = %(job)s and i.retryable
  and not exists (select from documents d where d.tenant = i.tenant and d.collection = j.collection
    and d.id = i.document_id and d.version > j.run and not d.retryable)
order by i.uri"""
READABLE_FAILURES = """
select i.document_id, i.uri, i.stage, i.reason, i.retryable
from job_items i join jobs j on j.tenant = i.tenant and j.id = i.job_id
where i.tenant = %(tenant)s and i.job_id = %(job)s and i.status = 'failed' and i.document_id > %(after)s
  and not exists (select from restricted_documents d where d.tenant = i.tenant and d.collection = j.collection
    and d.id = i.document_id and not d.access && %(groups)s::text[])
order by i.document_id limit %(limit)s"""
STAGES = """
select s.key as stage, round(sum(s.value::float8)::numeric, 3)::float8 as seconds, count(*) as done,
  to_timestamp(min((i.times -> s.key ->> 0)::float8)) as started_at,
  to_timestamp(max((i.times -> s.key ->> 1)::float8)) as finished_at
from job_items i cross join lateral jsonb_each_text(i.seconds) s
where i.tenant = %(tenant)s and i.job_id = %(job)s group by s.key order by started_at nulls last, s.key"""
# A stage of the job begins and ends once per turn.
JOB_STAGES = """
select status as stage, min(at) filter (where detail ->> 'state' is null) as started_at,
  max(at) filter (where detail ->> 'state' = 'completed') as finished_at
from job_events where tenant = %(tenant)s and job_id = %(job)s and stage = 'stage' group by status order by min(seq)"""
STAGE_SECONDS = """
select s.key, sum(s.value::float8) from job_items i cross join lateral jsonb_each_text(i.seconds) s
where i.tenant = %(tenant)s and i.job_id = %(job)s group by s.key"""
# `abandoned`: the job's process was killed. No connection holds the locks of `_lock_source` on its sources, and none of
# its documents was finished in the last minute: a job that lost its connection has no locks either, but continues. Jobs
# of the queue are never abandoned, because another worker leases them.
JOBS = """
select j.id, j.run, coalesce(c.name, j.request ->> 'collection') as collection, j.profile, j.status, j.reason, j.same,
  j.created_at, j.started_at, j.finished_at, j.seconds, j.settings, j.attempts, j.correlation_id,
  coalesce((select array_agg(s.uri order by s.uri) from sources s
    where s.tenant = j.tenant and s.id = any(j.sources)),
    array(select jsonb_array_elements_text(j.request -> 'locations'))) as sources,
  j.request is not null and not coalesce((j.request ->> 'from_operator')::boolean, false) as requested,
  (select count(*) from job_items i where i.tenant = j.tenant and i.job_id = j.id) as documents,
  (select count(*) from job_items i where i.tenant = j.tenant and i.job_id = j.id and i.status = 'failed') as failed,
  j.status = 'running' and j.request is null and not exists (
    select from pg_locks l, unnest(j.sources) s where l.locktype = 'advisory' and l.objsubid = 1
      and l.database = (select oid from pg_database where datname = current_database())
      and l.classid::bigint << 32 | l.objid::bigint
        = hashtextextended('rag.source ' || j.tenant || ' ' || s, j.collection))
    and not exists (select from job_items i where i.tenant = j.tenant and i.job_id = j.id
      and i.finished_at > now() - interval '1 minute') as abandoned
from jobs j left join collections c on c.tenant = j.tenant and c.id = j.collection
where j.tenant = %(tenant)s and (%(job)s::text is null or starts_with(j.id::text, %(job)s))
  and (%(before)s::bigint is null or j.run < %(before)s)
order by j.run desc limit %(limit)s"""
EVENTS = """
select seq, at, stage, status, detail from job_events where tenant = %(tenant)s and job_id = %(job)s and seq > %(after)s
order by seq"""
READABLE_EVENTS = """
select e.seq, e.at, e.stage, e.status, e.detail
from job_events e join jobs j on j.tenant = e.tenant and j.id = e.job_id
where e.tenant = %(tenant)s and e.job_id = %(job)s and e.seq > %(after)s
  and not (e.stage = 'document' and exists (select from restricted_documents d where d.tenant = j.tenant
    and d.collection = j.collection and d.id = (e.detail ->> 'document_id')::uuid
    and not d.access && %(groups)s::text[]))
order by e.seq"""
LISTEN = "listen rag_events"
ANY_FENCE = -1
COMPLETED = {"state": "completed"}
"""The detail of the event that a stage of a job has ended. The events of starts have no state."""
NO_JOB = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Job:
    """A job that this process runs.

    `run` is the version of the documents that it writes; later jobs have higher runs. `fence` increases whenever
    another worker takes the job over; it is always 0 outside the queue. `finished_documents` are those that earlier
    workers of the job have finished, successfully or not.
    """

    id: UUID
    run: int
    fence: int = 0
    finished_documents: frozenset[UUID] = frozenset()


def fencing_error(job: UUID) -> FencedError:
    """The error to raise when a job may no longer write."""
    return FencedError(f"job {job} was ended: it was cancelled, or another worker has taken over")


async def job_notifications(postgres: Postgres) -> AsyncGenerator[str, None]:
    """Yields the ids of jobs that have new events. The first id is empty, to report that the connection is listening.

    Raises StoreError if the store is unavailable or the connection is lost.
    """
    dsn = await to_thread.run_sync(postgres.read_dsn)
    with translate_connection_errors():
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute(LISTEN)
            yield ""
            async for notification in connection.notifies():
                yield notification.payload


class Ledger:
    """One tenant's jobs, over one connection. The connection must stay open while a job that it began is running."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self._connection = connection
        self._tenant = tenant

    def close(self) -> None:
        """Unlocks the sources at once. If the connection is only closed, they stay locked until the server notices."""
        with suppress(psycopg.OperationalError):
            self._connection.execute(UNLOCK)

    def claim(self, collection: int, sources: Sequence[int], job: UUID = NO_JOB) -> None:
        """Locks the sources for this connection, and ends the other running jobs on them.

        Those jobs were killed: a live one would still have its locks. Their workers cannot write any more, because each
        transaction checks that the job is running and has their fence. A killed job of the queue is queued again.
        Raises BusyError if another process has locked one of the sources.
        """
        self.reclaim(collection, sources)
        scope = self._scope(collection=collection, sources=list(sources), job=job)
        with transaction(self._connection, self._tenant):
            killed = [row[0] for row in self._connection.execute(FIND_KILLED, scope)]
            for id in killed:
                self._connection.execute(WAIT_FOR_WRITERS, {"job": id})
            ended = self._connection.execute(END_KILLED, self._scope(jobs=killed)).fetchall()
            self._end_items([id for id, _ in ended], "failed", INTERRUPTED)
            for id, seq in ended:
                self._add_event(id, seq, "job", "failed", {"reason": "interrupted"})
            for id, seq in self._connection.execute(QUEUE_KILLED, self._scope(jobs=killed)).fetchall():
                self._add_event(id, seq, "job", "queued", {"reason": "interrupted"})

    def reclaim(self, collection: int, sources: Sequence[int]) -> None:
        """Locks the sources for a job that continues over a new connection. Ends no other job.

        Raises BusyError if another job has locked one of them.
        """
        for source in sorted(sources):
            self._lock_source(collection, source)

    def is_disconnected(self) -> bool:
        """True if the connection is lost, and with it every lock."""
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
        job: UUID = NO_JOB,
        listed_at: datetime | None = None,
    ) -> Job:
        """Adds a running job with its documents. `same` counts the listed documents that need no work.

        Each item is the id and uri of a document, and what the job will do with it. A caller that does not know if its
        call was committed can repeat it with the same `job`, a random id; without one, the job gets a new id.
        `listed_at` is the time at which its listing began, or None for now.
        """
        job = uuid4() if job == NO_JOB else job
        values = self._scope(
            job=job,
            collection=collection,
            sources=list(sources),
            profile=profile,
            settings=Jsonb(settings),
            same=same,
        )
        with transaction(self._connection, self._tenant):
            run, is_new = self._connection.execute(BEGIN, values).fetchone() or (0, False)
            if is_new:
                self._add_event(job, 1, "stage", "listing", {}, listed_at)
                self._add_event(job, 2, "stage", "listing", COMPLETED)
                self._add_event(job, 3, "stage", "working", {"documents": len(items)})
            self._connection.execute(DROP_QUEUED, values)
            self._add_items(job, items)
            if is_new:
                record(self._connection, self._tenant, Change(operation="ingest", kind="job", ids=[job]))
        return Job(id=job, run=int(run))

    def start(self, job: UUID, fence: int) -> None:
        """Marks a job of the queue as running. Its sources must already be claimed.

        Raises FencedError if the job has ended or another worker has it.
        """
        values = self._scope(job=job, fence=fence)
        with transaction(self._connection, self._tenant):
            seq, attempt = self._connection.execute(START, values).fetchone() or (0, 0)
            if not seq:
                raise fencing_error(job)
            self._add_event(job, seq - 1, "job", "started", {"attempt": attempt})
            self._add_event(job, seq, "stage", "listing", {})

    def take_over(
        self,
        job: UUID,
        fence: int,
        collection: int,
        sources: Sequence[int],
        listed: Sequence[int],
        same: int,
        items: Sequence[tuple[UUID, str, Action]],
    ) -> Job:
        """Adds the documents of a started job of the queue, as `begin` does for other jobs.

        `listed` are those of its sources whose listing is complete. Raises FencedError if the job has ended or another
        worker has it.
        """
        values = self._scope(
            job=job,
            fence=fence,
            collection=collection,
            sources=list(sources),
            listed=list(listed),
            same=same,
            size=len(items),
        )
        with transaction(self._connection, self._tenant):
            self._connection.execute(WAIT_FOR_WRITERS, values)
            self._connection.execute(RENEW_RUN, values)
            run, seq = self._connection.execute(TAKE_OVER, values).fetchone() or (0, 0)
            if not seq:
                raise fencing_error(job)
            for statement in (DROP_QUEUED, DROP_PARTS):
                self._connection.execute(statement, {**values, "jobs": [job]})
            self._add_items(job, items)
            self._add_event(job, seq - 1, "stage", "listing", COMPLETED)
            self._add_event(job, seq, "stage", "working", {"documents": len(items)})
            finished = self.list_finished(job)
        return Job(id=job, run=int(run), fence=fence, finished_documents=finished)

    def list_finished(self, job: UUID) -> frozenset[UUID]:
        """The documents that the job has finished so far, successfully or not."""
        return frozenset(row["document_id"] for row in self._rows(ENDED_ITEMS, job=job))

    def record_finishing(self, job: UUID, fence: int) -> None:
        """Adds the events that the documents of a job are done, and that its indexes are being updated.

        Raises FencedError if the job has ended or another worker has it.
        """
        with transaction(self._connection, self._tenant):
            row = self._connection.execute(NUMBER_STAGE_EVENTS, self._scope(job=job, fence=fence)).fetchone()
            if row is None:
                raise fencing_error(job)
            self._add_event(job, row[0] - 1, "stage", "working", COMPLETED)
            self._add_event(job, row[0], "stage", "finishing", {})

    def end(
        self,
        job: UUID,
        status: str,
        reason: str = "",
        seconds: Mapping[str, float] | None = None,
        fence: int = ANY_FENCE,
    ) -> bool:
        """Ends a job. Its queued documents are cancelled with it; if it was not cancelled, they fail as interrupted.

        Returns False, and changes nothing, if the job has already ended or has another fence.
        """
        values = self._scope(job=job, status=status, reason=reason or None, seconds=Jsonb(seconds or {}), fence=fence)
        with transaction(self._connection, self._tenant):
            self._connection.execute(WAIT_FOR_WRITERS, values)
            row = self._connection.execute(END, values).fetchone()
            if row is not None:
                item = ("cancelled", CANCELLED) if status == "cancelled" else ("failed", INTERRUPTED)
                self._end_items([job], *item)
                if status == "completed":
                    self._add_event(job, row[0] - 1, "stage", "finishing", COMPLETED)
                self._add_event(job, row[0], "job", status, {"reason": reason})
                operation = "jobs.cancel" if status == "cancelled" else "jobs.end"
                detail = {"status": status, "documents": self.progress(job)}
                change = Change(operation=operation, kind="job", ids=[job], detail=detail)
                record(self._connection, self._tenant, change)
        return row is not None

    def is_open(self, job: UUID, fence: int) -> bool:
        """True if the job has not ended and has this fence."""
        return bool(self._rows(IS_OPEN, job=job, fence=fence))

    def has_completed(self, job: UUID, fence: int) -> bool:
        """True if the job was completed with this fence."""
        return bool(self._rows(HAS_COMPLETED, job=job, fence=fence))

    def progress(self, job: UUID) -> dict[str, int]:
        """The job's counts so far: documents by action or status, and chunks."""
        return self._rows(PROGRESS, job=job)[0]

    def count_labels(self, job: UUID) -> dict[str, int]:
        """The number of documents that the job has completed with each label in their recipe."""
        with transaction(self._connection, self._tenant):
            return dict(self._connection.execute(COUNT_LABELS, self._scope(job=job)).fetchall())

    def failures(self, job: UUID, *statuses: str) -> list[dict[str, Any]]:
        """The job's documents with one of these statuses, in the order in which they ended."""
        return self._rows(FAILURES, job=job, statuses=list(statuses))

    def readable_failures(self, job: UUID, groups: Sequence[str], after: UUID, limit: int) -> list[dict[str, Any]]:
        """A page of the failed documents that members of `groups` may read, in the order of their ids."""
        return self._readable_rows(READABLE_FAILURES, groups, job=job, after=after, limit=limit)

    def stages(self, job: UUID) -> list[dict[str, Any]]:
        """The stages of the documents: busy seconds, summed over processes, documents that passed, start and end."""
        return self._rows(STAGES, job=job)

    def job_stages(self, job: UUID) -> list[dict[str, Any]]:
        """The stages of the job itself, in order, with start and end; None if it has not ended."""
        return self._rows(JOB_STAGES, job=job)

    def dead_letters(self, job: UUID) -> list[str]:
        """The uris of documents that failed temporarily, or were cancelled, in this job and still need a retry.

        A document needs none if a later job has completed it, or if it failed permanently in a later job.
        """
        return [str(row["uri"]) for row in self._rows(DEAD_LETTERS, job=job)]

    def stage_seconds(self, job: UUID) -> dict[str, float]:
        """The busy seconds of each stage, summed over processes."""
        with transaction(self._connection, self._tenant):
            rows = self._connection.execute(STAGE_SECONDS, self._scope(job=job))
            return {str(stage): float(seconds) for stage, seconds in rows}

    def jobs(self, limit: int = 20, before: int | None = None) -> list[dict[str, Any]]:
        """A page of jobs, newest first. `before`: only jobs with a lower run."""
        return self._rows(JOBS, job=None, before=before, limit=limit)

    def job(self, id: str) -> dict[str, Any]:
        """The job whose id is `id` or begins with it. Raises NotFoundError if there is none, or more than one."""
        rows = self._rows(JOBS, job=id, before=None, limit=2)
        if len(rows) != 1:
            raise NotFoundError(f"there is {'more than one' if rows else 'no'} job {id}; `rag jobs list` shows them")
        return rows[0]

    def events(self, job: UUID, after: int = 0) -> list[dict[str, Any]]:
        """The events with numbers above `after`, in order."""
        return self._rows(EVENTS, job=job, after=after)

    def readable_events(self, job: UUID, groups: Sequence[str], after: int) -> list[dict[str, Any]]:
        """The events with numbers above `after`, in order, except those of documents that `groups` may not read."""
        return self._readable_rows(READABLE_EVENTS, groups, job=job, after=after)

    def _add_items(self, job: UUID, items: Sequence[tuple[UUID, str, Action]]) -> None:
        self._connection.execute(STAGE_ITEMS)
        with self._connection.cursor() as cursor, cursor.copy(COPY_ITEMS) as copy:
            copy.set_types(["uuid", "text", "text"])
            for item in items:
                copy.write_row(item)
        self._connection.execute(ADD_ITEMS, self._scope(job=job))

    def _add_event(
        self, job: UUID, seq: int, stage: str, status: str, detail: Mapping[str, Any], at: datetime | None = None
    ) -> None:
        event = {"job": job, "seq": seq, "stage": stage, "status": status, "detail": Jsonb(detail)}
        self._connection.execute(ADD_EVENT, self._scope(**event))
        if at:
            self._connection.execute(DATE_EVENT, self._scope(job=job, seq=seq, at=at))

    def _end_items(self, jobs: Sequence[UUID], status: str, reason: str) -> None:
        """Ends the queued documents of jobs that have ended, and deletes the jobs' parts and unneeded bodies."""
        self._connection.execute(END_ITEMS, self._scope(jobs=jobs, status=status, reason=reason))
        for statement in (DROP_PARTS, DROP_BODIES):
            self._connection.execute(statement, self._scope(jobs=jobs))

    def _lock_source(self, collection: int, source: int) -> None:
        key = {"source": f"rag.source {self._tenant} {source}", "collection": collection}
        row = self._connection.execute(LOCK, key).fetchone()
        if not row or not row[0]:
            raise BusyError("another job is running on this source; `rag jobs list` shows it")

    def _rows(self, statement: str, **values: object) -> list[dict[str, Any]]:
        with (
            transaction(self._connection, self._tenant),
            self._connection.cursor(row_factory=dict_row) as cursor,
        ):
            return cursor.execute(statement.encode(), self._scope(**values)).fetchall()

    def _readable_rows(self, statement: str, groups: Sequence[str], **values: object) -> list[dict[str, Any]]:
        with (
            read_transaction(self._connection, self._tenant, groups),
            self._connection.cursor(row_factory=dict_row) as cursor,
        ):
            return cursor.execute(statement.encode(), self._scope(**values, groups=list(groups))).fetchall()

    def _scope(self, **values: object) -> Mapping[str, object]:
        return {"tenant": self._tenant, **values}
