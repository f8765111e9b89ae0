"""The queue of ingest jobs: whoever asks enters one, and whoever has time leases it.

A lease runs out by the clock of the database. With each lease a job's fence is raised, and every transaction that
writes as the job compares it: who lost a lease without noticing writes nothing.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import psycopg
from psycopg import Connection
from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from rag_core.errors import IdempotencyError, NotFoundError, SourceError, StoreError, UsageError
from rag_core.storage.ledger import ADD_EVENT, Ledger
from rag_core.storage.postgres import Postgres, transaction

PUSHED = "push:///"
"""The uri of the source that all documents of a collection belong to that came with a request."""
ATTEMPTS = 3
"""How often a job is begun, where those who had it died or lost the store; then it is a dead letter."""
KEPT_DAYS = 7
"""For so long after a job's end a retry can have the bodies of what failed in it."""
SCRIPTS = ("javascript:", "data:", "vbscript:")
ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:[^\s\x00-\x1f\x7f]+")

FORGET_KEY = """
update jobs set idempotency_key = '' where tenant = %(tenant)s and idempotency_key = %(key)s and %(key)s <> ''
  and created_at < now() - interval '24 hours'"""
ENTER = """
insert into jobs (tenant, id, sources, profile, settings, status, same, events, request, pushes, correlation_id,
  traceparent, idempotency_key, fingerprint)
values (%(tenant)s, %(job)s, '{}', %(profile)s, %(settings)s, 'queued', 0, 1, %(request)s, %(pushes)s,
  %(correlation_id)s, %(traceparent)s, %(key)s, %(fingerprint)s)
on conflict (tenant, idempotency_key) where idempotency_key <> '' do nothing returning id"""
EARLIER = "select id, fingerprint from jobs where tenant = %(tenant)s and idempotency_key = %(key)s"
PUSH = """
insert into pushed_documents (tenant, job_id, id, uri, body, sha256, media_type, title, url, metadata)
values (%(tenant)s, %(job)s, %(id)s, %(uri)s, %(body)s, %(sha256)s, %(media_type)s, %(title)s, %(url)s, %(metadata)s)"""
WAKE = "select pg_notify('rag_queue', '')"
LISTEN = "listen rag_queue"

PUSHED_OF = """
select id, uri, length(body) as size, encode(sha256, 'hex') as sha256, media_type, title, url, metadata, pushed_at
from pushed_documents where tenant = %(tenant)s and job_id = %(job)s order by id"""
BODIES = """
select id, body from pushed_documents
where tenant = %(tenant)s and job_id = %(job)s and id = any(%(ids)s::text[])"""
# Without those that a newer run has brought to an end, or of which a newer version is on its way.
WORTH_A_RETRY = """
select p.id, p.body, p.media_type, p.title, p.url, p.metadata
from pushed_documents p join jobs j on j.tenant = p.tenant and j.id = p.job_id
where p.tenant = %(tenant)s and p.job_id = %(job)s and not exists (
  select from documents d join collections c on c.tenant = d.tenant and c.id = d.collection
  where d.tenant = p.tenant and c.name = j.request ->> 'collection' and d.uri = p.uri and d.version > j.run
    and not d.retryable)
  and not exists (select from pushed_documents n join jobs k on k.tenant = n.tenant and k.id = n.job_id
    where n.tenant = p.tenant and n.id = p.id and (k.created_at, k.id) > (j.created_at, j.id)
      and k.status <> 'cancelled' and k.request ->> 'collection' = j.request ->> 'collection')
order by p.id"""
ASKED = "select request from jobs where tenant = %(tenant)s and id = %(job)s"

# The oldest that nobody has. What was pushed into one collection goes in one at a time, and two versions of a document
# in the order in which they came, also while the first waits to be tried again.
CLAIM = """
with held as materialized (
  select tenant, request ->> 'collection' from jobs
  where status in ('queued', 'running') and pushes and lease_until > clock_timestamp()
), next as materialized (
  select q.tenant, q.id from jobs q
  where q.request is not null and q.status in ('queued', 'running') and q.attempts < %(most)s
    and q.run_at <= clock_timestamp() and (q.lease_until is null or q.lease_until < clock_timestamp())
    and not (q.pushes and ((q.tenant, q.request ->> 'collection') in (select * from held)
      or exists (select from pushed_documents b
        join pushed_documents a on a.tenant = b.tenant and a.id = b.id and a.job_id <> b.job_id
        join jobs e on e.tenant = a.tenant and e.id = a.job_id
        where b.tenant = q.tenant and b.job_id = q.id and e.status in ('queued', 'running')
          and (e.created_at, e.id) < (q.created_at, q.id)
          and e.request ->> 'collection' = q.request ->> 'collection')))
  order by q.run limit 1 for update of q skip locked
)
update jobs j set attempts = j.attempts + 1, fence = j.fence + 1, worker = %(worker)s,
  lease_until = clock_timestamp() + make_interval(secs => %(seconds)s)
from next where j.tenant = next.tenant and j.id = next.id
returning j.tenant, j.id as job, j.fence, j.attempts as attempt, j.pushes, j.profile, j.settings, j.request,
  j.correlation_id, j.traceparent"""
EXTEND = """
update jobs set lease_until = clock_timestamp() + make_interval(secs => %(seconds)s)
where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status in ('queued', 'running') returning id"""
# What was not started has no event of being queued again.
GIVE_BACK = """
with held as (
  select tenant, id, status = 'running' as started from jobs
  where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status in ('queued', 'running') for update
)
update jobs j set status = 'queued', fence = fence + 1, lease_until = null, attempts = attempts - %(uncounted)s,
  run_at = clock_timestamp() + make_interval(secs => %(delay)s), events = events + held.started::int
from held where j.tenant = held.tenant and j.id = held.id returning j.events, held.started"""
LOST = """
select tenant, id, fence from jobs
where request is not null and status in ('queued', 'running') and attempts >= %(most)s
  and (lease_until is null or lease_until < clock_timestamp())"""
FORGET_BODIES = """
delete from pushed_documents p using jobs j where j.tenant = p.tenant and j.id = p.job_id
  and j.finished_at < now() - make_interval(days => %(days)s)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedDocument:
    """A document whose bytes came with the request. `id` is the client's: the same again is a new version of the
    document. `url` is where it stands, for citations."""

    id: str
    body: bytes
    media_type: str = "text/plain"
    title: str = ""
    url: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return PUSHED + quote(self.id, safe="")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    """`settings` are frozen: without store and tenant. `locations` are those of `rag ingest`; `prune`, `confirmed` and
    `checksum` concern only them. `only` are the uris of a retry."""

    collection: str
    profile: str
    settings: Mapping[str, Any]
    locations: tuple[str, ...] = ()
    documents: tuple[PushedDocument, ...] = ()
    prune: bool = True
    confirmed: bool = False
    checksum: bool = False
    only: tuple[str, ...] = ()
    correlation_id: str = ""
    traceparent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """`replayed`: the job was there already."""

    job_id: UUID
    replayed: bool


class Queue:
    """One tenant's jobs to come, over one connection."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self._connection = connection
        self._tenant = tenant

    def enqueue(self, request: IngestRequest, idempotency_key: str = "", fingerprint: str = "") -> Accepted:
        """One transaction. The same key within 24 hours gives the job that it made, and enters nothing.

        IdempotencyError if that came with another fingerprint; SourceError for two documents of one id, an id that is
        none, metadata that no filter could compare, an url that is no place, and text that no store can hold.
        """
        _check(request.documents)
        scope = {"tenant": self._tenant, "job": uuid4(), "key": idempotency_key, "fingerprint": fingerprint}
        try:
            with transaction(self._connection, self._tenant):
                return self._entered(request, scope)
        except (psycopg.DataError, UnicodeError) as error:
            raise SourceError(f"text has no NUL and no lone surrogate: {error}") from error
        except psycopg.errors.ProgramLimitExceeded as error:
            raise SourceError(f"an id must be short enough for an index: {error}") from error

    def _entered(self, request: IngestRequest, scope: Mapping[str, Any]) -> Accepted:
        self._connection.execute(FORGET_KEY, scope)
        if self._connection.execute(ENTER, {**scope, **_job_row(request)}).fetchone() is None:
            return self._replayed(scope)
        with self._connection.cursor() as cursor:
            cursor.executemany(PUSH, ({**scope, **_pushed_row(document)} for document in request.documents))
        event = {"seq": 1, "stage": "job", "status": "queued", "detail": Jsonb({})}
        self._connection.execute(ADD_EVENT, {**scope, **event})
        self._connection.execute(WAKE)
        return Accepted(job_id=scope["job"], replayed=False)

    def _replayed(self, scope: Mapping[str, Any]) -> Accepted:
        job, fingerprint = self._connection.execute(EARLIER, scope).fetchone() or (scope["job"], "")
        if fingerprint != scope["fingerprint"]:
            raise IdempotencyError(
                f"an idempotency key stands for one request: {scope['key']!r} came with another one before"
            )
        return Accepted(job_id=job, replayed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What is known of a document that came with a job. `size` is in bytes, `sha256` in hexadecimal digits."""

    id: str
    uri: str
    size: int
    sha256: str
    media_type: str
    title: str
    url: str
    metadata: Mapping[str, Any]
    pushed_at: datetime


def stands_at(uri: str, metadata: Mapping[str, Any]) -> str:
    """Where who reads a document finds it: for one that was pushed that is what the request said, if it did."""
    said = str(metadata.get("url", ""))
    return said if uri.startswith(PUSHED) and _is_place(said) else uri


def pushed_documents(postgres: Postgres, tenant: str, job: UUID) -> list[Pushed]:
    """In the order of their ids."""
    with (
        postgres.connect() as connection,
        transaction(connection, tenant),
        connection.cursor(row_factory=class_row(Pushed)) as cursor,
    ):
        return cursor.execute(PUSHED_OF, {"tenant": tenant, "job": job}).fetchall()


def pushed_bodies(postgres: Postgres, tenant: str, job: UUID, ids: Sequence[str]) -> dict[str, bytes]:
    """By id; without those that are not kept any more."""
    with postgres.connect() as connection, transaction(connection, tenant):
        scope = {"tenant": tenant, "job": job, "ids": list(ids)}
        return {id: bytes(body) for id, body in connection.execute(BODIES, scope, binary=True)}


def retried(postgres: Postgres, tenant: str, job: UUID) -> IngestRequest:
    """The documents of a job that failed for the moment only, once more; of a job that did not complete, all of it.

    NotFoundError if there is no such job, or nothing in it that a retry may heal; UsageError if it has not ended.
    """
    with postgres.connect() as connection:
        ledger = Ledger(connection, tenant)
        found, letters = ledger.job(str(job)), ledger.dead_letters(job)
        if found["finished_at"] is None:
            raise UsageError(f"only a job that has ended can be tried again: job {job} is {found['status']}")
        with transaction(connection, tenant), connection.cursor(row_factory=dict_row) as cursor:
            scope = {"tenant": tenant, "job": job}
            bodies = cursor.execute(WORTH_A_RETRY, scope, binary=True).fetchall()
            asked = (cursor.execute(ASKED, scope).fetchone() or {})["request"] or {}
    whole = found["status"] != "completed"
    only = () if whole else tuple(uri for uri in letters if not uri.startswith(PUSHED))
    locations = asked["locations"] if asked else found["sources"]
    request = IngestRequest(
        collection=found["collection"],
        profile=found["profile"],
        settings=found["settings"],
        locations=tuple(locations) if whole or only else (),
        documents=tuple(PushedDocument(**body) for body in bodies),
        only=only,
        correlation_id=found["correlation_id"],
        **(
            {name: asked[name] for name in ("prune", "confirmed", "checksum") if name in asked}
            or {"prune": False}  # whether a job of the command was to prune is not known
        ),
    )
    if not request.locations and not request.documents:
        raise NotFoundError(f"job {job} has no failed documents that a retry may heal")
    return request


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A job that one worker has for now. `request` is without the bodies; `attempt` counts from 1."""

    job: UUID
    tenant: str
    fence: int
    attempt: int
    pushes: bool
    request: IngestRequest


class Leases:
    """All tenants' jobs, as workers take them, over one connection of the worker's role.

    `tenant` is the one whose jobs are seen in a store that has no such roles. StoreError, from every method, if the
    store is away.
    """

    def __init__(self, connection: Connection, tenant: str) -> None:
        self._connection = connection
        self._tenant = tenant

    def listen(self) -> None:
        """From now on `wait` hears of jobs that are entered."""
        with _translated():
            self._connection.execute(LISTEN)

    def wait(self, seconds: float) -> None:
        """Until a job was entered since the last time, but no longer than so many seconds."""
        with _translated():
            for _ in self._connection.notifies(timeout=seconds, stop_after=1):
                pass

    def claim(self, worker: str, seconds: float) -> Lease | None:
        """The oldest job that may be begun and that nobody has, or whose lease has run out; for so many seconds."""
        scope = {"worker": worker, "seconds": seconds, "most": ATTEMPTS}
        with transaction(self._connection, self._tenant), self._connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(CLAIM, scope).fetchone()
        return _lease(row) if row else None

    def heartbeat(self, lease: Lease, seconds: float) -> bool:
        """From now on for so many seconds more. False: somebody else has the job, or has ended it."""
        with transaction(self._connection, lease.tenant):
            return self._connection.execute(EXTEND, {**_own(lease), "seconds": seconds}).fetchone() is not None

    def release(self, lease: Lease, delay: float, reason: str, counted: bool = True) -> bool:
        """Back into the queue, to be begun in `delay` seconds at the earliest; `counted`: the attempt was one. False as
        for `heartbeat`."""
        scope = {**_own(lease), "delay": delay, "uncounted": int(not counted)}
        with transaction(self._connection, lease.tenant):
            row = self._connection.execute(GIVE_BACK, scope).fetchone()
            if row and row[1]:
                event = {"seq": row[0], "stage": "job", "status": "queued", "detail": Jsonb({"reason": reason})}
                self._connection.execute(ADD_EVENT, {**scope, **event})
        return row is not None

    def fail(self, lease: Lease, reason: str) -> bool:
        """For good: a retry is a job of its own. False as for `heartbeat`."""
        return Ledger(self._connection, lease.tenant).end(lease.job, "failed", reason, fence=lease.fence)

    def bury(self) -> int:
        """Ends the jobs whose workers died so often that they are not begun again. How many they were."""
        with transaction(self._connection, self._tenant):
            lost = self._connection.execute(LOST, {"most": ATTEMPTS}).fetchall()
        reason = f"dead letter: it was begun {ATTEMPTS} times, and whoever did it died"
        return sum(
            Ledger(self._connection, tenant).end(job, "failed", reason, fence=fence) for tenant, job, fence in lost
        )

    def forget(self) -> None:
        """The bodies of what failed in jobs that ended long ago."""
        with transaction(self._connection, self._tenant):
            self._connection.execute(FORGET_BODIES, {"days": KEPT_DAYS})


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except psycopg.OperationalError as error:
        raise StoreError(f"lost the store: {error}") from error


def _own(lease: Lease) -> dict[str, Any]:
    return {"tenant": lease.tenant, "job": lease.job, "fence": lease.fence}


def _lease(row: Mapping[str, Any]) -> Lease:
    asked = row["request"]
    request = IngestRequest(
        profile=row["profile"],
        settings=row["settings"],
        correlation_id=row["correlation_id"],
        traceparent=row["traceparent"],
        **{**asked, "locations": tuple(asked["locations"]), "only": tuple(asked["only"])},
    )
    own = {name: row[name] for name in ("job", "tenant", "fence", "attempt", "pushes")}
    return Lease(**own, request=request)


def _check(documents: Sequence[PushedDocument]) -> None:
    for id, times in Counter(document.id for document in documents).items():
        if not id or times > 1:
            raise SourceError(f"every pushed document has an id of its own, got {id!r} {times} times")
    for document in documents:
        _check_url(document)
        for key, value in document.metadata.items():
            if not _is_value(value):
                raise SourceError(
                    f"document {document.id!r}: metadata {key!r} must be a string, a number, a boolean or a list of "
                    f"strings, got {type(value).__name__}"
                )


def _check_url(document: PushedDocument) -> None:
    if document.url and not _is_place(document.url):
        raise SourceError(f"document {document.id!r}: url must be absolute, and no script, got {document.url!r}")


def _is_place(url: str) -> bool:
    return ABSOLUTE.fullmatch(url) is not None and not url.lower().startswith(SCRIPTS)


def _is_value(value: object) -> bool:
    return isinstance(value, str | int | float) or (
        isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
    )


def _job_row(request: IngestRequest) -> dict[str, Any]:
    names = ("collection", "locations", "prune", "confirmed", "checksum", "only")
    return {
        "profile": request.profile,
        "settings": Jsonb(dict(request.settings)),
        "request": Jsonb({name: getattr(request, name) for name in names}),
        "pushes": bool(request.documents),
        "correlation_id": request.correlation_id,
        "traceparent": request.traceparent,
    }


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
    }
