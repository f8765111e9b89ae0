"""`/v1/jobs/{id}/events`: the events of a job as they occur. Events are in the store, so any replica can respond."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import BoundedSemaphore
from time import monotonic
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from rag_core.errors import OverloadedError, StoreError
from rag_core.ingestion.report import DOCUMENT_STATUSES
from rag_core.storage.ledger import Ledger, job_notifications
from rag_core.storage.postgres import Postgres
from rag_core.wire.jobs import JobEvent
from rag_core.wire.shape import json_text
from serve.authentication.caller import Caller
from serve.bodies.openapi import EVENTS, Responses
from serve.http.connections import open_ledger
from serve.http.dependencies import CurrentServices, JobReader
from serve.http.event_stream import KEEP_ALIVE_SECONDS, EventStream
from serve.public_errors import hide_places
from serve.routes.jobs import KILLED_STATUS, OPEN_STATUSES, with_killed_status
from serve.services import Services

router = APIRouter()

LastEventId = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, lt=2**63)]
BEFORE_FIRST = -1
"""The `after` of a client that has received nothing.

Jobs of `rag ingest` have no stored start: `read_update` adds it as event 0. Queued jobs begin with the stored event 1.
"""
POLL_SECONDS = 5.0
"""Seconds between two reads of a watched job if no notification arrives."""
NOTIFICATION_DELAY = 0.05
"""Seconds between a notification and the read, so that one read includes events in quick succession."""
MAX_WATCHERS = 32
"""The maximum number of streams of a replica."""
MAX_WATCH_SECONDS = 600.0
"""Seconds after which a stream ends even if the job has not. Clients then reconnect with `Last-Event-ID`."""
RESPONSES: Responses = {
    200: {"description": "The events", "content": dict(EVENTS)},
    204: {"description": "The client has already received the last event"},
}

_watchers = BoundedSemaphore(MAX_WATCHERS)


async def limit_watchers(_caller: JobReader) -> AsyncIterator[None]:
    """Counts the request as a watcher until its response ends. Raises OverloadedError if there are too many.

    The caller is identified first, so that strangers occupy no place.
    """
    if not _watchers.acquire(blocking=False):
        raise OverloadedError(f"too many clients are watching jobs (limit {MAX_WATCHERS})")
    try:
        yield
    finally:
        _watchers.release()


@router.get(
    "/v1/jobs/{id}/events",
    response_class=StreamingResponse,
    responses=RESPONSES,
    dependencies=[Depends(limit_watchers)],
)
async def events(
    id: UUID, caller: JobReader, services: CurrentServices, request: Request, last_event_id: LastEventId = None
) -> Response:
    """Streams the events after `Last-Event-ID` until the job ends, for at most ten minutes.

    Responds with 204 if the client has already received the last event; browsers then stop reconnecting.
    """
    watch = JobWatch(services=services, caller=caller, job_id=id, notifier=_replica_notifier(request, services))
    update = await run_in_threadpool(watch.read_update, BEFORE_FIRST if last_event_id is None else last_event_id)
    if update.ended and not update.texts:
        return Response(status_code=204)
    return EventStream(watch.stream_texts(update))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUpdate:
    """One read of a job. `texts` are the new server-sent events; `last_seq` is the number of the last event."""

    texts: Sequence[str]
    last_seq: int
    ended: bool


class JobNotifier:
    """The notifications of new events, by job. While there are watchers, one connection listens for all jobs."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._subscribers: dict[str, set[asyncio.Event]] = {}
        self._listener: asyncio.Task[None] | None = None

    @contextmanager
    def subscribe(self, job_id: UUID) -> Iterator[asyncio.Event]:
        """Yields an asyncio event that each notification sets.

        It is already set at the beginning, because a notification can have arrived before the subscription.
        """
        notified = asyncio.Event()
        notified.set()
        self._subscribers.setdefault(str(job_id), set()).add(notified)
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())
        try:
            yield notified
        finally:
            self._subscribers[str(job_id)].discard(notified)
            if not self._subscribers[str(job_id)]:
                del self._subscribers[str(job_id)]
            if not self._subscribers and self._listener is not None:
                self._listener.cancel()
                self._listener = None

    async def _listen(self) -> None:
        """Passes notifications on until it is cancelled. Reconnects if the connection is lost.

        All watchers are notified after each connection, because earlier notifications can have been missed.
        """
        while True:
            try:
                async with aclosing(job_notifications(self._postgres)) as job_ids:
                    async for job_id in job_ids:
                        # an empty id reports a new connection: all watchers are notified
                        for id in [job_id] if job_id else list(self._subscribers):
                            for notified in self._subscribers.get(id, ()):
                                notified.set()
            except StoreError:
                await asyncio.sleep(POLL_SECONDS)


def _replica_notifier(request: Request, services: Services) -> JobNotifier:
    """The notifier that all streams of the replica share. The first stream creates it."""
    state = request.app.state
    if not hasattr(state, "job_notifier"):
        state.job_notifier = JobNotifier(services.postgres)
    notifier: JobNotifier = state.job_notifier
    return notifier


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWatch:
    """A client's watch of a job. It has a connection to the store only during a read: watchers can be many."""

    services: Services
    caller: Caller
    job_id: UUID
    notifier: JobNotifier

    async def stream_texts(self, update: JobUpdate) -> AsyncGenerator[str, None]:
        """Yields the texts of `update` and of later updates until the job ends, for at most `MAX_WATCH_SECONDS`.

        Yields a comment after each `KEEP_ALIVE_SECONDS` without an event.
        """
        with self.notifier.subscribe(self.job_id) as notified:
            started = last_sent = monotonic()
            while True:
                for text in update.texts:
                    yield text
                if update.ended or monotonic() - started >= MAX_WATCH_SECONDS:
                    return
                last_sent = monotonic() if update.texts else last_sent
                if monotonic() - last_sent >= KEEP_ALIVE_SECONDS:
                    yield ": keep-alive\n\n"
                    last_sent = monotonic()
                await _wait_for_notification(notified)
                try:
                    update = await run_in_threadpool(self.read_update, update.last_seq)
                except StoreError:  # the job continues when the store is available again: keep watching
                    update = JobUpdate(texts=(), last_seq=update.last_seq, ended=False)

    def read_update(self, after: int) -> JobUpdate:
        """The events after number `after`. Raises NotFoundError if the job does not exist."""
        with open_ledger(self.services, self.caller) as ledger:
            row = ledger.job(str(self.job_id))  # read first: if the job has ended, the events then include its end
            progress = ledger.progress(self.job_id)
            events = ledger.readable_events(self.job_id, self.caller.groups, after)
            killed_end = _end_of_killed_job(ledger, self.job_id, after) if row["abandoned"] else []
        if after == BEFORE_FIRST and not (events and events[0]["status"] == "queued"):  # a job outside the queue
            events.insert(0, {"seq": 0, "at": row["started_at"], "stage": "job", "status": "started", "detail": {}})
        events += killed_end
        figures = _progress_figures(row, progress)
        texts = [_format_event(self.job_id, event, figures) for event in events]
        last_seq = events[-1]["seq"] if events else after
        return JobUpdate(texts=texts, last_seq=last_seq, ended=with_killed_status(row)["status"] not in OPEN_STATUSES)


async def _wait_for_notification(notified: asyncio.Event) -> None:
    """Waits until a notification arrives, for at most `POLL_SECONDS`."""
    try:
        async with asyncio.timeout(POLL_SECONDS):
            await notified.wait()
            await asyncio.sleep(NOTIFICATION_DELAY)
    except TimeoutError:
        pass
    notified.clear()


def _end_of_killed_job(ledger: Ledger, job_id: UUID, after: int) -> list[dict[str, Any]]:
    """The end of a killed job, which is not stored yet: it has the next free number.

    Reads the events from number `after` on. If there are none, `after` was the number of this end: the client already
    has it, and the list is empty.
    """
    events = ledger.events(job_id, max(after - 1, 0))
    if after > 0 and not events:
        return []
    seq = events[-1]["seq"] + 1 if events else 1
    detail = {"reason": KILLED_STATUS["reason"]}
    return [{"seq": seq, "at": datetime.now(UTC), "stage": "job", "status": KILLED_STATUS["status"], "detail": detail}]


def _format_event(job_id: UUID, event: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    """The text of a server-sent event.

    In the store, the status of a `stage` event is the stage's name, and its detail has the state `completed` if the
    stage has ended. The events `publish` and `delete` become `job.progress`.
    """
    stage, status, detail = event["stage"], event["status"], event["detail"]
    match stage:
        case "job":
            name, members = status, {"stage": stage, "status": status, **_public_detail(detail)}
        case "stage":
            name, members = stage, {"stage": status, "status": detail.get("state", "running")}
        case "document":
            name, members = stage, {"stage": detail["stage"], "status": status, "document": _public_detail(detail)}
        case _:
            name, members = "progress", {"stage": stage, "status": status}
    body = JobEvent(job_id=job_id, seq=event["seq"], **members, timestamp=event["at"], **figures)
    return f"id: {body.seq}\nevent: job.{name}\ndata: {json_text(body)}\n\n"


def _public_detail(detail: Mapping[str, Any]) -> Mapping[str, Any]:
    """The detail of an event with a reason that clients may read."""
    if not detail.get("reason"):
        return detail
    return {**detail, "reason": hide_places(detail["reason"], [detail.get("uri", "")])}


def _progress_figures(row: Mapping[str, Any], progress: Mapping[str, int]) -> dict[str, Any]:
    """The job's progress at the time of the read. Older events of the same read have the same figures."""
    now = datetime.now(UTC)
    seconds = max(((row["finished_at"] or now) - (row["started_at"] or now)).total_seconds(), 0.001)
    done = progress["deleted"] + progress["same"] + sum(progress[name] for name in DOCUMENT_STATUSES)
    rate = done / seconds
    return {
        "done": done,
        "total": done + progress["queued"] + progress["cancelled"],
        "failed": progress["failed"],
        "chunks": progress["chunks"],
        "docs_per_s": round(rate, 1),
        "eta_s": round(progress["queued"] / rate, 1) if rate else None,
    }
