"""`/v1/jobs`: what is done, when, and what failed. Any replica tells of any job: all is read from the store."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from rag_core.build.ingestion import settings_of
from rag_core.config import Settings
from rag_core.errors import StoreError
from rag_core.ingestion.report import ENDS
from rag_core.wire import json_text
from serve.access import Caller
from serve.answers import STREAM_HEADERS
from serve.cursors import Paged, listing
from serve.documents import NIL
from serve.graph import Graph
from serve.opened import ledger
from serve.requests import Served, Who
from serve.responses import as_json
from serve.stream import KEEP_ALIVE

router = APIRouter()

NEWEST = str(2**63 - 1)
FAILURE = ("uri", "stage", "reason", "retryable")
LastSeen = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, lt=2**63)]
BEGINNING = -1
"""What was seen before the first event, which tells that the job has started and has number 0."""
POLL = 1.0
"""Seconds between looks at a job that is watched."""


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


@router.get("/v1/jobs/{id}/events")
async def events(id: UUID, who: Who, graph: Served, last_event_id: LastSeen = None) -> Response:
    """From the one behind `Last-Event-ID` on, until the job ends. 204, which tells a browser to stay away, for who has
    seen the end."""
    after = BEGINNING if last_event_id is None else last_event_id
    watch = Watch(graph=graph, who=who, job=id)
    seen = await run_in_threadpool(watch.look, after)
    if seen.ended and not seen.frames:
        return Response(status_code=204)
    return StreamingResponse(watch.frames(seen), media_type="text/event-stream", headers=STREAM_HEADERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`frames` are server-sent events that are new; `last` is the number of the last one that is not."""

    frames: Sequence[str]
    last: int
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Looks at a job again and again, over a connection of its own each time: watchers are many, connections few."""

    graph: Graph
    who: Caller
    job: UUID

    async def frames(self, seen: Seen) -> AsyncGenerator[str, None]:
        """Those seen already, and what follows until the job ends; a comment where there is nothing for long."""
        silent = 0.0
        while True:
            for frame in seen.frames:
                yield frame
            if seen.ended:
                return
            silent = 0.0 if seen.frames else silent + POLL
            if silent >= KEEP_ALIVE:
                yield ": keep-alive\n\n"
                silent = 0.0
            await asyncio.sleep(POLL)
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
            done, events = known.progress(self.job), known.events(self.job, after)
        if after == BEGINNING:
            events.insert(0, {"seq": 0, "at": found["started_at"], "stage": "job", "status": "started"})
        figures = _figures(found, done)
        frames = [_frame(self.job, event, figures) for event in events]
        return Seen(frames=frames, last=events[-1]["seq"] if events else after, ended=found["status"] != "running")


def _frame(job: UUID, event: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    name = event["status"] if event["stage"] == "job" else "progress"
    told = {"seq": event["seq"], "stage": event["stage"], "status": event["status"], "timestamp": event["at"]}
    return f"id: {event['seq']}\nevent: job.{name}\ndata: {json_text({'job_id': job, **told, **figures})}\n\n"


def _figures(row: Mapping[str, Any], done: Mapping[str, int]) -> dict[str, Any]:
    """Of this moment, also where the event is older."""
    seconds = max(((row["finished_at"] or datetime.now(UTC)) - row["started_at"]).total_seconds(), 0.001)
    documents = row["documents"] - done["queued"]
    rate = documents / seconds
    return {
        "done": documents,
        "total": row["documents"],
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
        "counts": _counts(found, done),
        "stages": {each["stage"]: {"seconds": each["seconds"], "done": each["done"]} for each in stages},
        "failures": [{name: failure[name] for name in FAILURE} for failure in failures],
        **more,
    }


def _head(row: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """A job is created as it starts."""
    return {
        "job_id": row["id"],
        "status": row["status"],
        "reason": row["reason"],
        "collection": row["collection"],
        "profile": row["profile"],
        "pipeline_version": _pipeline_version(row, settings),
        "created_at": row["started_at"],
        "started_at": row["started_at"],
        "finished_at": row["finished_at"],
    }


def _pipeline_version(row: Mapping[str, Any], settings: Settings) -> str | None:
    """None for a job whose configuration today's rules do not allow any more."""
    try:
        return settings_of(row, settings).pipeline_version
    except ValidationError:
        return None


def _counts(row: Mapping[str, Any], done: Mapping[str, int]) -> dict[str, int]:
    """As `rag ingest --json` has them."""
    same = row["same"] + done["same"]
    ended = {name: done[name] for name in ("added", "changed", "deleted", *ENDS)}
    return {"listed": done["added"] + done["changed"] + same, "same": same, **ended}
