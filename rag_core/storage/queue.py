"""The queue of ingest jobs: clients enqueue jobs, and idle workers lease them.

A lease expires by the database's clock. Each lease raises the job's fence, and every transaction that writes for the
job compares it. A worker that lost its lease without noticing therefore writes nothing.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, LiteralString
from urllib.parse import quote
from uuid import UUID, uuid4

import psycopg
from psycopg import Connection
from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from rag_core.errors import IdempotencyError, NotFoundError, SourceError, UsageError
from rag_core.storage.audit import Change, record
from rag_core.storage.ledger import ADD_EVENT, NO_JOB, Ledger
from rag_core.storage.postgres import Postgres, transaction, translate_connection_errors
from rag_core.storage.retention import DELETIONS

PUSHED_URI = "push:///"
JSON_LINES_SCHEME = "jsonl:"
"""The beginning of the uris of documents that are lines of a file."""
"""The uri of the source of pushed documents: those that a request contained. Every collection has its own source with
this uri, and the uris of the documents begin with it."""
MAX_ATTEMPTS = 3
"""The number of attempts after which a job fails. An attempt has failed if its worker died or lost the store."""
SCRIPT_SCHEMES = ("javascript:", "data:", "vbscript:")
ABSOLUTE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:[^\s\x00-\x1f\x7f]+")

EXPIRE_KEY = """
update jobs set idempotency_key = '' where tenant = %(tenant)s and user_id = %(user_id)s and idempotency_key = %(key)s
  and %(key)s <> '' and created_at < now() - interval '24 hours'"""
ADD_JOB = """
insert into jobs (tenant, id, sources, profile, settings, status, same, events, request, pushes, size, correlation_id,
  traceparent, idempotency_key, fingerprint, user_id)
values (%(tenant)s, %(job)s, '{}', %(profile)s, %(settings)s, 'queued', 0, 1, %(request)s, %(pushes)s, %(size)s,
  %(correlation_id)s, %(traceparent)s, %(key)s, %(fingerprint)s, %(user_id)s)
on conflict (tenant, user_id, idempotency_key) where idempotency_key <> '' do nothing returning id"""
JOB_OF_KEY = """
select id, fingerprint from jobs where tenant = %(tenant)s and user_id = %(user_id)s and idempotency_key = %(key)s"""
ADD_DOCUMENT = """
insert into pushed_documents (tenant, job_id, id, uri, body, sha256, media_type, title, url, metadata, access)
values (%(tenant)s, %(job)s, %(id)s, %(uri)s, %(body)s, %(sha256)s, %(media_type)s, %(title)s, %(url)s, %(metadata)s,
  %(access)s)"""
NOTIFY_WORKERS = "select pg_notify('rag_queue', '')"
LISTEN = "listen rag_queue"

PUSHED_RECORDS = """
select id, uri, length(body) as size, encode(sha256, 'hex') as sha256, media_type, title, url, metadata, access,
  pushed_at
from pushed_documents where tenant = %(tenant)s and job_id = %(job)s order by id"""
BODIES = """
select id, body from pushed_documents
where tenant = %(tenant)s and job_id = %(job)s and id = any(%(ids)s::text[])"""
# Leaves out documents that a newer run completed or failed permanently, and those that were pushed again later.
RETRYABLE_DOCUMENTS = """
select p.id, p.body, p.media_type, p.title, p.url, p.metadata, p.access
from pushed_documents p join jobs j on j.tenant = p.tenant and j.id = p.job_id
where p.tenant = %(tenant)s and p.job_id = %(job)s and not exists (
  select from documents d join collections c on c.tenant = d.tenant and c.id = d.collection
  where d.tenant = p.tenant and c.name = j.request ->> 'collection' and d.uri = p.uri and d.version > j.run
    and not d.retryable)
  and not exists (select from pushed_documents newer
    join jobs newer_job on newer_job.tenant = newer.tenant and newer_job.id = newer.job_id
    where newer.tenant = p.tenant and newer.id = p.id
      and (newer_job.created_at, newer_job.id) > (j.created_at, j.id) and newer_job.status <> 'cancelled'
      and newer_job.request ->> 'collection' = j.request ->> 'collection')
order by p.id"""
STORED_REQUEST = "select request, user_id from jobs where tenant = %(tenant)s and id = %(job)s"

# Begins a statement with the table `waiting`: the jobs that can start now and have no valid lease. Only one job at a
# time pushes documents into a collection, and the versions of a document are ingested in the order in which they
# arrived, even while an earlier job waits for its next attempt.
WITH_WAITING: LiteralString = """
with busy_collections as materialized (
  select tenant, request ->> 'collection' from jobs
  where status in ('queued', 'running') and pushes and lease_until > clock_timestamp()
), waiting as materialized (
  select q.tenant, q.id, q.run, q.run_at, q.size from jobs q
  where q.request is not null and q.status in ('queued', 'running') and q.attempts < %(max_attempts)s
    and q.run_at <= clock_timestamp() and (q.lease_until is null or q.lease_until < clock_timestamp())
    and not (q.pushes and ((q.tenant, q.request ->> 'collection') in (select * from busy_collections)
      or exists (select from pushed_documents own
        join pushed_documents other
          on other.tenant = own.tenant and other.id = own.id and other.job_id <> own.job_id
        join jobs earlier on earlier.tenant = other.tenant and earlier.id = other.job_id
        where own.tenant = q.tenant and own.job_id = q.id and earlier.status in ('queued', 'running')
          and (earlier.created_at, earlier.id) < (q.created_at, q.id)
          and earlier.request ->> 'collection' = q.request ->> 'collection')))
)"""
# The turn is that of the tenant with the fewest leases, then of the tenant whose last turn began longest ago. Within a
# tenant, jobs take turns in the order in which they became ready.
CLAIM = (
    WITH_WAITING  # noqa: S608 - both are constants
    + """, tenants as materialized (
  select tenant, (select count(*) from jobs j where j.tenant = w.tenant and j.status in ('queued', 'running')
      and j.lease_until > clock_timestamp()) as leases,
    (select max(leased_at) from jobs j where j.tenant = w.tenant) as leased_at
  from (select distinct tenant from waiting) w
), next_job as materialized (
  select q.tenant, q.id from jobs q join waiting w on w.tenant = q.tenant and w.id = q.id
  join tenants t on t.tenant = q.tenant
  where q.lease_until is null or q.lease_until < clock_timestamp()
  order by t.leases, t.leased_at nulls first, w.run_at, w.run limit 1 for update of q skip locked
)
update jobs j set attempts = j.attempts + 1, fence = j.fence + 1, worker = %(worker)s, leased_at = clock_timestamp(),
  lease_until = clock_timestamp() + make_interval(secs => %(seconds)s)
from next_job where j.tenant = next_job.tenant and j.id = next_job.id
returning j.tenant, j.id as job, j.fence, j.attempts as attempt, j.pushes, j.worked_seconds, j.profile, j.settings,
  j.request, j.correlation_id, j.traceparent"""
)
# A turn ends only after it has finished a document, so that every job advances. Jobs of the same tenant have precedence
# only if they are smaller.
IS_TURN_OVER = (
    WITH_WAITING  # noqa: S608 - both are constants
    + """
select from jobs j where j.tenant = %(tenant)s and j.id = %(job)s and j.fence = %(fence)s
  and j.leased_at < clock_timestamp() - make_interval(secs => %(turn)s)
  and exists (select from job_items i
    where i.tenant = j.tenant and i.job_id = j.id and i.finished_at > j.leased_at)
  and exists (select from waiting w
    where w.tenant <> j.tenant or w.size < (select count(*) from job_items i
      where i.tenant = j.tenant and i.job_id = j.id and i.status = 'queued'))"""
)
EXTEND = """
update jobs set lease_until = clock_timestamp() + make_interval(secs => %(seconds)s)
where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status in ('queued', 'running') returning id"""
# A leased job that was not started still has the status `queued`, so no second event reports that it is queued.
RELEASE = """
with leased_job as (
  select tenant, id, status = 'running' as started from jobs
  where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status in ('queued', 'running') for update
)
update jobs j set status = 'queued', fence = fence + 1, lease_until = null, attempts = attempts - %(uncounted)s,
  worked_seconds = worked_seconds + extract(epoch from clock_timestamp() - leased_at),
  run_at = clock_timestamp() + make_interval(secs => %(delay)s), events = events + leased_job.started::int
from leased_job where j.tenant = leased_job.tenant and j.id = leased_job.id returning j.events, leased_job.started"""
FIND_ABANDONED = """
select tenant, id, fence from jobs
where request is not null and status in ('queued', 'running') and attempts >= %(max_attempts)s
  and (lease_until is null or lease_until < clock_timestamp())"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedDocument:
    """A document whose bytes a request contained.

    `id` is the client's; a later document with the same id is a new version of it. `url` is its address in citations.
    `access` holds the groups that can read it; if it is None, the rules of the settings decide.
    """

    id: str
    body: bytes
    media_type: str = "text/plain"
    title: str = ""
    url: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    access: Sequence[str] | None = None

    @property
    def uri(self) -> str:
        return pushed_uri(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    """A job to enqueue.

    The job keeps `settings` as they are now; they do not include store and tenant. `locations` are sources, as in
    `rag ingest`, and `prune`, `confirmed` and `checksum` apply only to them. `only` holds the uris that a retry reads;
    if it is empty, all are read. `from_operator`: a job of `rag ingest` named the locations, so they are not limited.
    `user_id` is empty for an unknown user; idempotency keys belong to users, and `rag purge --user` erases what a user
    sent. `retry_of` is the job that a retry continues.
    """

    collection: str
    profile: str
    settings: Mapping[str, Any]
    locations: tuple[str, ...] = ()
    documents: tuple[PushedDocument, ...] = ()
    prune: bool = True
    confirmed: bool = False
    checksum: bool = False
    only: tuple[str, ...] = ()
    from_operator: bool = False
    retry_of: UUID = NO_JOB
    correlation_id: str = ""
    traceparent: str = ""
    user_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueuedJob:
    """The job of a request. `replayed`: an earlier request with the same idempotency key had enqueued it."""

    job_id: UUID
    replayed: bool


class Queue:
    """The jobs that one tenant enqueues, over one connection."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self._connection = connection
        self._tenant = tenant

    def enqueue(self, request: IngestRequest, idempotency_key: str = "", fingerprint: str = "") -> EnqueuedJob:
        """Adds a job in one transaction. If the user used the key in the last 24 hours, returns that job.

        Raises IdempotencyError if the user used the key with another fingerprint. Raises SourceError for a missing or
        duplicate document id, metadata that filters cannot compare, a url that is not absolute, and text that the
        store cannot hold.
        """
        _check_documents(request.documents)
        keyed = {"key": idempotency_key, "fingerprint": fingerprint, "user_id": request.user_id}
        scope = {"tenant": self._tenant, "job": uuid4(), **keyed}
        try:
            with transaction(self._connection, self._tenant):
                return self._add_job(request, scope)
        except (psycopg.DataError, UnicodeError) as error:
            raise SourceError(f"text must not contain NUL or lone surrogates: {error}") from error
        except psycopg.errors.ProgramLimitExceeded as error:
            raise SourceError(f"an id must be short enough for an index: {error}") from error

    def is_replay(self, user_id: str, idempotency_key: str) -> bool:
        """True if the user used the key in the last 24 hours, so that `enqueue` adds no job."""
        if not idempotency_key:
            return False
        scope = {"tenant": self._tenant, "user_id": user_id, "key": idempotency_key}
        with transaction(self._connection, self._tenant):
            self._connection.execute(EXPIRE_KEY, scope)
            return self._connection.execute(JOB_OF_KEY, scope).fetchone() is not None

    def _add_job(self, request: IngestRequest, scope: Mapping[str, Any]) -> EnqueuedJob:
        self._connection.execute(EXPIRE_KEY, scope)
        if self._connection.execute(ADD_JOB, {**scope, **_job_row(request)}).fetchone() is None:
            job, fingerprint = self._connection.execute(JOB_OF_KEY, scope).fetchone() or (scope["job"], "")
            if fingerprint != scope["fingerprint"]:
                raise IdempotencyError(f"idempotency key {scope['key']!r} was used before, for another request")
            return EnqueuedJob(job_id=job, replayed=True)
        with self._connection.cursor() as cursor:
            cursor.executemany(ADD_DOCUMENT, ({**scope, **_pushed_row(document)} for document in request.documents))
        event = {"seq": 1, "stage": "job", "status": "queued", "detail": Jsonb({})}
        self._connection.execute(ADD_EVENT, {**scope, **event})
        self._connection.execute(NOTIFY_WORKERS)
        record(self._connection, self._tenant, _describe_change(request, scope["job"]))
        return EnqueuedJob(job_id=scope["job"], replayed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedRecord:
    """A stored pushed document without its body. `size` is in bytes, `sha256` is hexadecimal."""

    id: str
    uri: str
    size: int
    sha256: str
    media_type: str
    title: str
    url: str
    metadata: Mapping[str, Any]
    access: Sequence[str] | None
    pushed_at: datetime


def document_url(uri: str, metadata: Mapping[str, Any]) -> str:
    """The address that citations link to: the uri of a document, or the `url` that came with a given or pushed one."""
    url = str(metadata.get("url", ""))
    return url if uri.startswith((PUSHED_URI, JSON_LINES_SCHEME)) and _is_absolute_url(url) else uri


def pushed_uri(id: str) -> str:
    return PUSHED_URI + quote(id, safe="")


def list_pushed_documents(postgres: Postgres, tenant: str, job: UUID) -> list[PushedRecord]:
    """The documents that a job's request contained, in the order of their ids."""
    with (
        postgres.connect() as connection,
        transaction(connection, tenant),
        connection.cursor(row_factory=class_row(PushedRecord)) as cursor,
    ):
        return cursor.execute(PUSHED_RECORDS, {"tenant": tenant, "job": job}).fetchall()


def load_pushed_bodies(postgres: Postgres, tenant: str, job: UUID, ids: Sequence[str]) -> dict[str, bytes]:
    """The bodies of these documents by id, without those that have been deleted."""
    with postgres.connect() as connection, transaction(connection, tenant):
        scope = {"tenant": tenant, "job": job, "ids": list(ids)}
        return {id: bytes(body) for id, body in connection.execute(BODIES, scope, binary=True)}


def build_retry_request(postgres: Postgres, tenant: str, job: UUID) -> IngestRequest:
    """A request for a job's documents that failed temporarily, or for everything if the job did not complete.

    Raises NotFoundError if there is no such job or nothing to retry, and UsageError if the job has not ended.
    """
    with postgres.connect() as connection:
        ledger = Ledger(connection, tenant)
        row, dead_letters = ledger.job(str(job)), ledger.dead_letters(job)
        if row["finished_at"] is None:
            raise UsageError(f"only a job that has ended can be retried: job {job} is {row['status']}")
        with transaction(connection, tenant), connection.cursor(row_factory=dict_row) as cursor:
            scope = {"tenant": tenant, "job": job}
            documents = cursor.execute(RETRYABLE_DOCUMENTS, scope, binary=True).fetchall()
            job_row = cursor.execute(STORED_REQUEST, scope).fetchone() or {}
    stored = job_row["request"] or {}
    retry_all = row["status"] != "completed"
    only = () if retry_all else tuple(uri for uri in dead_letters if not uri.startswith(PUSHED_URI))
    locations = stored["locations"] if stored else row["sources"]
    options = {name: stored[name] for name in ("prune", "confirmed", "checksum") if name in stored}
    request = IngestRequest(
        collection=row["collection"],
        profile=row["profile"],
        settings=row["settings"],
        locations=tuple(locations) if retry_all or only else (),
        documents=tuple(PushedDocument(**document) for document in documents),
        only=only,
        from_operator=stored.get("from_operator", False) if stored else True,
        retry_of=job,
        correlation_id=row["correlation_id"],
        user_id=job_row["user_id"],
        **(options or {"prune": False}),  # `rag ingest` does not store its options: deleting nothing is safe
    )
    if not request.locations and not request.documents:
        raise NotFoundError(f"job {job} has no failed documents to retry")
    return request


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A job that one worker may run until the lease expires.

    `attempt` counts from 1. `pushes`: the request contained documents; their bodies are not in `request`.
    `worked_seconds` are those of earlier turns.
    """

    job: UUID
    tenant: str
    fence: int
    attempt: int
    pushes: bool
    worked_seconds: float
    request: IngestRequest


class Leases:
    """The jobs of all tenants, for workers, over one connection of the worker's role.

    In a store without database roles, only the jobs of `tenant` are visible. Every method raises StoreError if the
    store is unavailable.
    """

    def __init__(self, connection: Connection, tenant: str) -> None:
        self._connection = connection
        self._tenant = tenant

    def listen(self) -> None:
        """Subscribes to notifications of new jobs, so that `wait` returns early."""
        with translate_connection_errors():
            self._connection.execute(LISTEN)

    def wait(self, seconds: float) -> None:
        """Waits until a job has been enqueued since the last call, for at most `seconds`."""
        with translate_connection_errors():
            for _ in self._connection.notifies(timeout=seconds, stop_after=1):
                pass

    def claim(self, worker: str, seconds: float) -> Lease | None:
        """Leases a job that can start now and has no valid lease, for `seconds`. Returns None if none can.

        Tenants take turns, and so do the jobs of one tenant.

        `worker` is the name that is stored with the job.
        """
        scope = {"worker": worker, "seconds": seconds, "max_attempts": MAX_ATTEMPTS}
        with transaction(self._connection, self._tenant), self._connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(CLAIM, scope).fetchone()
        return _lease_from_row(row) if row else None

    def heartbeat(self, lease: Lease, seconds: float) -> bool:
        """Extends the lease to `seconds` from now. Returns False if another worker has the job, or it has ended."""
        with transaction(self._connection, lease.tenant):
            row = self._connection.execute(EXTEND, {**_lease_scope(lease), "seconds": seconds}).fetchone()
        return row is not None

    def is_turn_over(self, lease: Lease, turn: float) -> bool:
        """True if the job should make way: its turn has lasted `turn` seconds, and a more urgent job waits.

        More urgent are jobs of other tenants, and smaller ones of the same tenant. A job that has finished no document
        in its turn keeps it.
        """
        scope = {**_lease_scope(lease), "turn": turn, "max_attempts": MAX_ATTEMPTS}
        with transaction(self._connection, self._tenant):
            return self._connection.execute(IS_TURN_OVER, scope).fetchone() is not None

    def release(self, lease: Lease, delay: float, reason: str, count_attempt: bool = True) -> bool:
        """Queues the job again; it can start after `delay` seconds.

        `count_attempt`: the attempt counts towards `MAX_ATTEMPTS`. Returns False if another worker has the job, or it
        has ended.
        """
        scope = {**_lease_scope(lease), "delay": delay, "uncounted": int(not count_attempt)}
        with transaction(self._connection, lease.tenant):
            row = self._connection.execute(RELEASE, scope).fetchone()
            if row and row[1]:
                event = {"seq": row[0], "stage": "job", "status": "queued", "detail": Jsonb({"reason": reason})}
                self._connection.execute(ADD_EVENT, {**scope, **event})
        return row is not None

    def fail(self, lease: Lease, reason: str) -> bool:
        """Ends the job as failed; a retry is a new job. Returns False if another worker has it, or it has ended."""
        return Ledger(self._connection, lease.tenant).end(lease.job, "failed", reason, fence=lease.fence)

    def fail_abandoned(self) -> int:
        """Fails the jobs whose worker died in each of `MAX_ATTEMPTS` attempts. Returns their number."""
        with transaction(self._connection, self._tenant):
            abandoned = self._connection.execute(FIND_ABANDONED, {"max_attempts": MAX_ATTEMPTS}).fetchall()
        reason = f"dead letter: it was started {MAX_ATTEMPTS} times, and its worker died each time"
        return sum(
            Ledger(self._connection, tenant).end(job, "failed", reason, fence=fence) for tenant, job, fence in abandoned
        )

    def delete_old_bodies(self, days: int) -> None:
        """Deletes the remaining bodies of documents of jobs that ended more than `days` days ago."""
        with transaction(self._connection, self._tenant):
            self._connection.execute(DELETIONS["uploads"], {"days": days})


def _lease_scope(lease: Lease) -> dict[str, Any]:
    return {"tenant": lease.tenant, "job": lease.job, "fence": lease.fence}


def _lease_from_row(row: Mapping[str, Any]) -> Lease:
    stored = row["request"]
    request = IngestRequest(
        profile=row["profile"],
        settings=row["settings"],
        correlation_id=row["correlation_id"],
        traceparent=row["traceparent"],
        **{**stored, "locations": tuple(stored["locations"]), "only": tuple(stored["only"])},
    )
    columns = {name: row[name] for name in ("job", "tenant", "fence", "attempt", "pushes", "worked_seconds")}
    return Lease(**columns, request=request)


def _check_documents(documents: Sequence[PushedDocument]) -> None:
    for id, count in Counter(document.id for document in documents).items():
        if not id or count > 1:
            raise SourceError(f"every pushed document must have a unique, non-empty id, got {id!r} {count} times")
    for document in documents:
        if document.url and not _is_absolute_url(document.url):
            raise SourceError(f"document {document.id!r}: url must be absolute and not a script, got {document.url!r}")
        for key, value in document.metadata.items():
            is_list = isinstance(value, list | tuple) and all(isinstance(element, str) for element in value)
            if not is_list and not isinstance(value, str | int | float):
                raise SourceError(
                    f"document {document.id!r}: metadata {key!r} must be a string, a number, a boolean or a list of "
                    f"strings, got {type(value).__name__}"
                )


def _is_absolute_url(url: str) -> bool:
    """True if the url is absolute and a link to it runs no script."""
    return ABSOLUTE_URL.fullmatch(url) is not None and not url.lower().startswith(SCRIPT_SCHEMES)


def _job_row(request: IngestRequest) -> dict[str, Any]:
    """The columns of a request in `jobs`. Its documents are stored in a separate table."""
    names = ("collection", "locations", "prune", "confirmed", "checksum", "only", "from_operator")
    return {
        "profile": request.profile,
        "settings": Jsonb(dict(request.settings)),
        "request": Jsonb({name: getattr(request, name) for name in names}),
        "pushes": bool(request.documents),
        "size": None if request.locations else len(request.documents),
        "correlation_id": request.correlation_id,
        "traceparent": request.traceparent,
        "user_id": request.user_id,
    }


def _describe_change(request: IngestRequest, job: UUID) -> Change:
    """The change for the audit. It names no document and no location: both can contain names of people."""
    is_retry = request.retry_of != NO_JOB
    detail = {
        "collection": request.collection,
        "documents": len(request.documents),
        "locations": len(request.locations),
        **({"retry_of": str(request.retry_of)} if is_retry else {}),
    }
    return Change(operation="ingest.retry" if is_retry else "ingest", kind="job", ids=[job], detail=detail)


def _pushed_row(document: PushedDocument) -> dict[str, Any]:
    return {
        "id": document.id,
        "uri": document.uri,
        "body": document.body,
        "sha256": sha256(document.body).digest(),
        "media_type": document.media_type,
        "title": document.title,
        "url": document.url,
        "metadata": Jsonb(dict(document.metadata)),
        "access": document.access if document.access is None else sorted(set(document.access)),
    }
