"""Jobs, their documents and their events, as every process of every host can read them.

A job that runs holds an advisory lock on each of its sources for as long as its connection lives. So a job that is
called running but holds no lock was killed, and who gets the lock may end it; one that was queued is queued again.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID, uuid4

import psycopg
from psycopg import Connection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from rag_core.errors import BusyError, FencedError, NotFoundError, StoreError
from rag_core.storage.postgres import Postgres, transaction

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
update job_items set status = 'failed', stage = 'job', reason = %(reason)s, retryable = true, finished_at = now()
where tenant = %(tenant)s and job_id = any(%(jobs)s::uuid[]) and status = 'queued'"""
# A body is kept for as long as a retry may want it: of what failed for the moment, and of what nobody came to.
DROP_BODIES = """
delete from pushed_documents p using jobs j
where p.tenant = %(tenant)s and p.job_id = any(%(jobs)s::uuid[]) and j.tenant = p.tenant and j.id = p.job_id
  and not exists (select from job_items i where i.tenant = p.tenant and i.job_id = p.job_id and i.uri = p.uri
    and i.status = 'failed' and i.retryable)
  and (j.status = 'completed' or exists (select from job_items i
    where i.tenant = p.tenant and i.job_id = p.job_id and i.uri = p.uri))"""
DROP_PARTS = "delete from draft_parts where tenant = %(tenant)s and job_id = any(%(jobs)s::uuid[])"
BEGIN = """
insert into jobs (tenant, id, collection, sources, profile, settings, status, same, started_at)
values (%(tenant)s, %(job)s, %(collection)s, %(sources)s::int[], %(profile)s, %(settings)s, 'running', %(same)s, now())
returning run"""
START = """
update jobs set status = 'running', started_at = coalesce(started_at, now()), events = events + 2
where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status in ('queued', 'running')
returning events, attempts"""
# Of a job that others began before: what has ended stays so, what has not is planned anew.
DROP_QUEUED = "delete from job_items where tenant = %(tenant)s and job_id = %(job)s and status = 'queued'"
# A listing that is newer than another job's has a higher run. What was pushed keeps the order in which it came, also
# behind a job whose run was so renewed.
RENEW_RUN = """
update jobs j set run = default where j.tenant = %(tenant)s and j.id = %(job)s and (exists (select from jobs n
  where n.tenant = j.tenant and n.run > j.run and n.collection = %(collection)s and n.sources && %(listed)s::int[])
or j.pushes and exists (select from jobs e where e.tenant = j.tenant and e.run > j.run and e.pushes
  and e.collection = %(collection)s and (e.created_at, e.id) < (j.created_at, j.id)))"""
TAKE_OVER = """
update jobs set same = case when collection is null then %(same)s else same end, collection = %(collection)s,
  sources = %(sources)s::int[], events = events + 1
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
  started_at = coalesce(started_at, now()), lease_until = null, events = events + 1
where tenant = %(tenant)s and id = %(job)s and status in ('queued', 'running')
  and (fence = %(fence)s or %(fence)s = -1) returning events"""
NEXT_STAGE = """
update jobs set events = events + 1
where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status = 'running' returning events"""
ADD_EVENT = """
insert into job_events (tenant, job_id, seq, stage, status, detail)
values (%(tenant)s, %(job)s, %(seq)s, %(stage)s, %(status)s, %(detail)s)
returning pg_notify('rag_events', %(job)s::text)"""
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
# `abandoned`: nobody holds a source of a job that runs, as `_lock` does, and none of its documents has ended for a
# minute: whoever ran it was killed. (One whose connection was lost holds none, too, and goes on.) A queued one is given
# to another by its lease.
JOBS = """
select j.id, j.run, coalesce(c.name, j.request ->> 'collection') as collection, j.profile, j.status, j.reason, j.same,
  j.created_at, j.started_at, j.finished_at, j.seconds, j.settings, j.attempts, j.correlation_id,
  coalesce((select array_agg(s.uri order by s.uri) from sources s
    where s.tenant = j.tenant and s.id = any(j.sources)),
    array(select jsonb_array_elements_text(j.request -> 'locations'))) as sources,
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
  and not (e.stage = 'document' and exists (select from documents d where d.tenant = j.tenant
    and d.collection = j.collection and d.id = (e.detail ->> 'document_id')::uuid and d.access <> '{}'
    and not d.access && %(groups)s::text[]))
order by e.seq"""
LISTEN = "listen rag_events"
ANY_FENCE = -1
NO_JOB = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Job:
    """`run` is the version of what it writes: a later job's is higher. `fence` is raised with who holds it, and 0 where
    nobody else can. `ended` are the documents that those who held it before have brought to an end."""

    id: UUID
    run: int
    fence: int = 0
    ended: frozenset[UUID] = frozenset()


def fenced(job: UUID) -> FencedError:
    """For who finds that the job may not write any more."""
    return FencedError(f"job {job} was ended: it was cancelled, or a newer run has taken over")


async def told(postgres: Postgres) -> AsyncGenerator[str, None]:
    """The ids of jobs, as something happens to them; first an empty one, when it has begun to listen.

    StoreError if the store is away, or goes away.
    """
    try:
        async with await psycopg.AsyncConnection.connect(postgres.dsn, autocommit=True) as connection:
            await connection.execute(LISTEN)
            yield ""
            async for notice in connection.notifies():
                yield notice.payload
    except psycopg.OperationalError as error:
        raise StoreError(f"lost the store: {error}") from error


class Ledger:
    """One tenant's jobs, over one connection, which must live as long as a job that it begins."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self._connection = connection
        self._tenant = tenant

    def close(self) -> None:
        """Lets go of the sources now: a connection that is closed does so a moment later, when its server notices."""
        with suppress(psycopg.OperationalError):
            self._connection.execute(UNLOCK)

    def claim(self, collection: int, sources: Sequence[int], job: UUID = NO_JOB) -> None:
        """Locks the sources for this connection, and ends the other jobs that were killed while they held them.

        From then on no worker of such a job can write: its transactions need the job to be running, and its fence.
        One that came from the queue goes back there. BusyError if a job that lives holds one of them.
        """
        for source in sorted(sources):
            self._lock(collection, source)
        scope = self._scope(collection=collection, sources=list(sources), job=job)
        with transaction(self._connection, self._tenant):
            killed = [row[0] for row in self._connection.execute(KILLED, scope)]
            for job in killed:
                self._connection.execute(WAIT_FOR_WRITERS, {"job": job})
            ended = self._connection.execute(END_KILLED, self._scope(jobs=killed)).fetchall()
            self._give_up([id for id, _ in ended])
            for id, seq in ended:
                self._tell(id, seq, "job", "failed", {"reason": "interrupted"})
            for id, seq in self._connection.execute(QUEUE_KILLED, self._scope(jobs=killed)).fetchall():
                self._tell(id, seq, "job", "queued", {"reason": "interrupted"})

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
            self._add_items(job, items)
        return Job(id=job, run=int(row[0]) if row else 0)

    def start(self, job: UUID, fence: int) -> None:
        """A job of the queue, whose sources are claimed, is running from now on. FencedError if somebody else has it,
        or has ended it."""
        values = self._scope(job=job, fence=fence)
        with transaction(self._connection, self._tenant):
            seq, attempt = self._connection.execute(START, values).fetchone() or (0, 0)
            if not seq:
                raise fenced(job)
            self._tell(job, seq - 1, "job", "started", {"attempt": attempt})
            self._tell(job, seq, "stage", "listing", {})

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
        """As `begin`, for a job that is started. Of its sources, `listed` are those that are listed whole.

        FencedError as for `start`.
        """
        values = self._scope(
            job=job, fence=fence, collection=collection, sources=list(sources), listed=list(listed), same=same
        )
        with transaction(self._connection, self._tenant):
            self._connection.execute(WAIT_FOR_WRITERS, values)
            self._connection.execute(RENEW_RUN, values)
            run, seq = self._connection.execute(TAKE_OVER, values).fetchone() or (0, 0)
            if not seq:
                raise fenced(job)
            for statement in (DROP_QUEUED, DROP_PARTS):
                self._connection.execute(statement, {**values, "jobs": [job]})
            self._add_items(job, items)
            self._tell(job, seq, "stage", "working", {"documents": len(items)})
            ended = frozenset(row[0] for row in self._connection.execute(ENDED_ITEMS, values))
        return Job(id=job, run=int(run), fence=fence, ended=ended)

    def next_stage(self, job: UUID, fence: int, stage: str) -> None:
        """Tells that a job of the queue has come to another part of its work. FencedError as for `start`."""
        with transaction(self._connection, self._tenant):
            row = self._connection.execute(NEXT_STAGE, self._scope(job=job, fence=fence)).fetchone()
            if row is None:
                raise fenced(job)
            self._tell(job, row[0], "stage", stage, {})

    def end(
        self,
        job: UUID,
        status: str,
        reason: str = "",
        seconds: Mapping[str, float] | None = None,
        fence: int = ANY_FENCE,
    ) -> bool:
        """Whether it had not ended before, and its fence is that one: else it stays as it is. What is queued of it
        fails as interrupted."""
        values = self._scope(job=job, status=status, reason=reason or None, seconds=Jsonb(seconds or {}), fence=fence)
        with transaction(self._connection, self._tenant):
            self._connection.execute(WAIT_FOR_WRITERS, values)
            row = self._connection.execute(END, values).fetchone()
            if row is not None:
                self._give_up([job])
                self._tell(job, row[0], "job", status, {"reason": reason})
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

    def readable_events(self, job: UUID, groups: Sequence[str], after: int) -> list[dict[str, Any]]:
        """Without those of documents that nobody of these groups may read."""
        return self._rows(READABLE_EVENTS, job=job, groups=list(groups), after=after)

    def _add_items(self, job: UUID, items: Sequence[tuple[UUID, str, Action]]) -> None:
        self._connection.execute(STAGE_ITEMS)
        with self._connection.cursor() as cursor, cursor.copy(COPY_ITEMS) as copy:
            copy.set_types(["uuid", "text", "text"])
            for item in items:
                copy.write_row(item)
        self._connection.execute(ADD_ITEMS, self._scope(job=job))

    def _tell(self, job: UUID, seq: int, stage: str, status: str, detail: Mapping[str, Any]) -> None:
        event = {"job": job, "seq": seq, "stage": stage, "status": status, "detail": Jsonb(detail)}
        self._connection.execute(ADD_EVENT, self._scope(**event))

    def _give_up(self, jobs: Sequence[UUID]) -> None:
        """What these jobs, which have ended, did not come to."""
        self._connection.execute(END_ITEMS, self._scope(jobs=jobs, reason=INTERRUPTED))
        for statement in (DROP_PARTS, DROP_BODIES):
            self._connection.execute(statement, self._scope(jobs=jobs))

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
