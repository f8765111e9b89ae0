"""`/v1/jobs`: what is done, when, and what failed. Any replica tells of any job: all is read from the store."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import BoundedSemaphore
from time import monotonic
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from rag_core.config import Settings
from rag_core.errors import ConfigError, OverloadedError, StoreError
from rag_core.ingestion.report import ENDS
from rag_core.storage.ledger import Ledger, told
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import Queue, retried
from rag_core.telemetry.traces import trace_headers
from rag_core.wire import json_text
from rag_core.wiring.ingestion import settings_of
from serve.bodies.openapi import EVENTS, Statuses
from serve.graph import Graph
from serve.http.access import Caller
from serve.http.connections import ledger
from serve.http.cursors import Paged, listing
from serve.http.dependencies import Served, Who
from serve.http.event_stream import KEEP_ALIVE, EventStream
from serve.http.responses import as_json
from serve.public_errors import hide_store
from serve.routes.documents import NIL

router = APIRouter()

NEWEST = str(2**63 - 1)
FAILURE = ("uri", "stage", "reason", "retryable")
LastSeen = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, lt=2**63)]
BEGINNING = -1
"""What was seen before the first event: of a job that never was in the queue that tells that it has started, and has
number 0."""
POLL = 5.0
"""Seconds between looks at a job that is watched, where nothing is heard of it."""
LULL = 0.05
"""Seconds between hearing of a job and looking at it: what happens meanwhile is seen with it."""
WATCHERS = 32
"""Streams of a replica at once: half of what it works on, so that who watches keeps nobody from asking."""
LONGEST_WATCH = 600.0
"""Seconds, after which a stream ends though its job has not: who still watches comes again with `Last-Event-ID`."""
OPEN = ("queued", "running")
KILLED = {"status": "failed", "reason": "interrupted"}
"""How a job ends that was killed."""
STREAMED: Statuses = {
    200: {"description": "The events", "content": dict(EVENTS)},
    204: {"description": "The last one was seen"},
}

_watching = BoundedSemaphore(WATCHERS)


@router.get("/v1/jobs")
def jobs(asked: Annotated[Paged, Query()], who: Who, graph: Served) -> Response:
    """Newest first."""
    order = listing(graph, who, "run", "jobs")
    before = int(order.after(asked.cursor, NEWEST))
    with ledger(graph, who) as known:
        page, more = order.page(known.jobs(asked.one_more, before), asked.limit)
    rows = [{**_head(row, graph.settings), "documents": row["documents"], "failed": row["failed"]} for row in page]
    return as_json({"data": rows, **more})


@router.get("/v1/jobs/{id}")
def job(id: UUID, asked: Annotated[Paged, Query()], who: Who, graph: Served) -> Response:
    """With the failures of documents that the caller may read, a page at a time."""
    return as_json(_body(id, asked, who, graph))


@router.post("/v1/jobs/{id}/cancel")
def cancel(id: UUID, who: Who, graph: Served) -> Response:
    """What it has published stays, nothing more is written. A job that has ended stays as it is."""
    with ledger(graph, who) as known:
        known.job(str(id))
        known.end(id, "cancelled", "over HTTP")
    return as_json(_body(id, Paged(), who, graph))


@router.post("/v1/jobs/{id}/retry", status_code=202)
def retry(id: UUID, who: Who, graph: Served, request: Request) -> Response:
    """What failed in it for the moment only, once more, as a job of its own; of a job that did not complete, all of it
    that is not done yet. One that was killed is ended first."""
    with ledger(graph, who) as known:
        if known.job(str(id))["abandoned"]:
            known.end(id, KILLED["status"], KILLED["reason"])
    traces = {"correlation_id": request.state.correlation_id, "traceparent": trace_headers().get("traceparent", "")}
    again = replace(retried(graph.postgres, who.tenant, id), **traces)
    with graph.postgres.connect() as connection:
        accepted = Queue(connection, who.tenant).enqueue(again)
    to = links(accepted.job_id)
    body = {"job_id": accepted.job_id, "status": "queued", "documents": len(again.documents), "links": to}
    return as_json(body, 202, {"Location": to["self"]})


async def one_watcher() -> AsyncIterator[None]:
    """As long as its response is on its way. OverloadedError if there are as many as may be."""
    if not _watching.acquire(blocking=False):
        raise OverloadedError("as many watch jobs here as may")
    try:
        yield
    finally:
        _watching.release()


@router.get(
    "/v1/jobs/{id}/events",
    response_class=StreamingResponse,
    responses=STREAMED,
    dependencies=[Depends(one_watcher)],
)
async def events(id: UUID, who: Who, graph: Served, request: Request, last_event_id: LastSeen = None) -> Response:
    """From the one behind `Last-Event-ID` on, until the job ends, or for ten minutes. 204, which tells a browser to
    stay away, for who has seen the end."""
    after = BEGINNING if last_event_id is None else last_event_id
    watch = Watch(graph=graph, who=who, job=id, wakes=_wakes(request, graph))
    seen = await run_in_threadpool(watch.look, after)
    if seen.ended and not seen.frames:
        return Response(status_code=204)
    return EventStream(watch.frames(seen))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`frames` are server-sent events that are new; `last` is the number of the last one that is not."""

    frames: Sequence[str]
    last: int
    ended: bool


class Wakes:
    """Wakes who watches a job when something happens to it. As long as anybody does, one connection listens."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._listening: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, job: UUID) -> Iterator[asyncio.Event]:
        """It is set already: something may have happened since the watcher looked."""
        woken = asyncio.Event()
        woken.set()
        self._watchers.setdefault(str(job), set()).add(woken)
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        try:
            yield woken
        finally:
            self._leave(str(job), woken)

    def _leave(self, job: str, woken: asyncio.Event) -> None:
        self._watchers[job].discard(woken)
        if not self._watchers[job]:
            del self._watchers[job]
        if not self._watchers and self._listening is not None:
            self._listening.cancel()
            self._listening = None

    async def _listen(self) -> None:
        while True:
            try:
                async with aclosing(told(self._postgres)) as jobs:
                    async for job in jobs:
                        self._wake(job)
            except StoreError:
                await asyncio.sleep(POLL)

    def _wake(self, job: str) -> None:
        """All, for none: nobody knows what was told while nobody listened."""
        jobs = [job] if job else list(self._watchers)
        for woken in (woken for each in jobs for woken in self._watchers.get(each, ())):
            woken.set()


def _wakes(request: Request, graph: Graph) -> Wakes:
    """One a replica."""
    state = request.app.state
    if not hasattr(state, "wakes"):
        state.wakes = Wakes(graph.postgres)
    wakes: Wakes = state.wakes
    return wakes


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Looks at a job whenever something has happened to it, over a connection of its own each time: watchers are many,
    connections few."""

    graph: Graph
    who: Caller
    job: UUID
    wakes: Wakes

    async def frames(self, seen: Seen) -> AsyncGenerator[str, None]:
        """Those seen already, and what follows until the job ends, or for LONGEST_WATCH; a comment where there is
        nothing for long."""
        with self.wakes.watching(self.job) as woken:
            began = spoken = monotonic()
            while True:
                for frame in seen.frames:
                    yield frame
                if seen.ended or monotonic() - began >= LONGEST_WATCH:
                    return
                spoken = monotonic() if seen.frames else spoken
                if monotonic() - spoken >= KEEP_ALIVE:
                    yield ": keep-alive\n\n"
                    spoken = monotonic()
                await _heard(woken)
                seen = await self._again(seen.last)

    async def _again(self, after: int) -> Seen:
        try:
            return await run_in_threadpool(self.look, after)
        except StoreError:  # a job outlives that, and so does who watches it
            return Seen(frames=(), last=after, ended=False)

    def look(self, after: int) -> Seen:
        """NotFoundError if there is no such job."""
        with ledger(self.graph, self.who) as known:
            found = known.job(str(self.job))  # before its events: they then include the end of a job that has ended
            done, events = known.progress(self.job), known.readable_events(self.job, self.who.groups, after)
            killed = _end_of_killed(known, self.job, after) if found["abandoned"] else []
        if after == BEGINNING and not (events and events[0]["status"] == "queued"):
            events.insert(0, {"seq": 0, "at": found["started_at"], "stage": "job", "status": "started", "detail": {}})
        events += killed
        figures = _figures(found, done)
        frames = [_frame(self.job, event, figures) for event in events]
        last = events[-1]["seq"] if events else after
        return Seen(frames=frames, last=last, ended=_seen(found)["status"] not in OPEN)


async def _heard(woken: asyncio.Event) -> None:
    """Something, or nothing for POLL."""
    try:
        async with asyncio.timeout(POLL):
            await woken.wait()
            await asyncio.sleep(LULL)
    except TimeoutError:
        pass
    woken.clear()


def _end_of_killed(known: Ledger, job: UUID, after: int) -> list[dict[str, Any]]:
    """With the number that it will have once somebody ends the job; none for who has seen it."""
    told = known.events(job, max(after - 1, 0))
    if after > 0 and not told:
        return []
    number, detail = told[-1]["seq"] + 1 if told else 1, {"reason": KILLED["reason"]}
    return [{"seq": number, "at": datetime.now(UTC), "stage": "job", "status": KILLED["status"], "detail": detail}]


def _frame(job: UUID, event: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    name, own = _told(event)
    body = {"job_id": job, "seq": event["seq"], **own, "timestamp": event["at"], **figures}
    return f"id: {event['seq']}\nevent: job.{name}\ndata: {json_text(body)}\n\n"


def _told(event: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The event's name, and what it tells beside the figures."""
    stage, status, detail = event["stage"], event["status"], event["detail"]
    match stage:
        case "job":
            reason = {"reason": hide_store(detail["reason"])} if "reason" in detail else {}
            return status, {"stage": stage, "status": status, **detail, **reason}
        case "stage":
            return stage, {"stage": status, "status": "running"}
        case "document":
            return stage, {"stage": detail["stage"], "status": status, "document": detail}
        case _:
            return "progress", {"stage": stage, "status": status}


def _figures(row: Mapping[str, Any], done: Mapping[str, int]) -> dict[str, Any]:
    """Of this moment, also where the event is older, and all of one look at the job's documents."""
    now = datetime.now(UTC)
    seconds = max(((row["finished_at"] or now) - (row["started_at"] or now)).total_seconds(), 0.001)
    documents = done["deleted"] + done["same"] + sum(done[name] for name in ENDS)
    rate = documents / seconds
    return {
        "done": documents,
        "total": documents + done["queued"],
        "failed": done["failed"],
        "chunks": done["chunks"],
        "docs_per_s": round(rate, 1),
        "eta_s": round(done["queued"] / rate, 1) if rate else None,
    }


def _body(id: UUID, asked: Paged, who: Caller, graph: Graph) -> dict[str, Any]:
    order = listing(graph, who, "document_id", "failures", str(id))
    after = UUID(order.after(asked.cursor, NIL))
    with ledger(graph, who) as known:
        found, done, stages = known.job(str(id)), known.progress(id), known.stages(id)
        failures, more = order.page(known.some_failures(id, who.groups, after, asked.one_more), asked.limit)
    return {
        **_head(found, graph.settings),
        "counts": counts(found, done),
        "stages": {each["stage"]: {"seconds": each["seconds"], "done": each["done"]} for each in stages},
        "failures": [{name: failure[name] for name in FAILURE} for failure in failures],
        **more,
    }


def _head(row: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    seen = _seen(row)
    return {
        "job_id": row["id"],
        "status": seen["status"],
        "reason": seen["reason"] and hide_store(seen["reason"]),
        "collection": row["collection"],
        "profile": row["profile"],
        "pipeline_version": _pipeline_version(row, settings),
        "created_at": row["created_at"],
        "started_at": row["started_at"],
        "finished_at": row["finished_at"],
    }


def _seen(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """One that was killed has failed, also while nobody has ended it: the next sync of its sources will."""
    return {**job, **KILLED} if job["abandoned"] else job


def _pipeline_version(row: Mapping[str, Any], settings: Settings) -> str | None:
    """None for a job whose configuration today's rules do not allow any more."""
    try:
        return settings_of(row, settings).pipeline_version
    except ConfigError:
        return None


def counts(row: Mapping[str, Any], done: Mapping[str, int]) -> dict[str, int]:
    """As `rag ingest --json` has them."""
    same = row["same"] + done["same"]
    ended = {name: done[name] for name in ("added", "changed", "deleted", *ENDS)}
    return {"listed": done["added"] + done["changed"] + same, "same": same, **ended}


def links(id: UUID) -> dict[str, str]:
    return {"self": f"/v1/jobs/{id}", "events": f"/v1/jobs/{id}/events"}
