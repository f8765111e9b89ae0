"""`/v1/ingest`: documents that come with the request, and sources that the gateway can list, on their way into a
collection. The work is a job of the queue, which the request only enters."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from threading import BoundedSemaphore
from time import monotonic
from typing import Any, TypeAlias
from uuid import UUID

from anyio import CapacityLimiter, sleep, to_thread
from anyio.lowlevel import RunVar
from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from rag_core.config import Settings
from rag_core.errors import (
    DocumentError,
    RagError,
    StoreError,
    TooLargeError,
    TransientError,
    UnavailableError,
    error_from_reason,
)
from rag_core.settings import load_settings, shipped_profiles
from rag_core.storage.ledger import Ledger
from rag_core.storage.queue import Accepted, IngestRequest, Queue
from rag_core.telemetry.traces import trace_headers
from rag_core.wiring.ingestion import NOT_RECORDED
from serve.bodies.ingest import MEGABYTE, MOST_DOCUMENTS, IngestBody, Ingested, SourceBody, UploadBody
from serve.bodies.ingest_form import Received, Refused, Taken, received_form, received_json, refuse_profile
from serve.bodies.openapi import BODY, Statuses
from serve.bodies.uploads import Form, uploaded
from serve.graph import Graph
from serve.http.access import Caller
from serve.http.connections import ledger
from serve.http.dependencies import Served, Who
from serve.http.preferences import Key, Wait
from serve.http.problems import RefusedDocumentsError, invalid, problem
from serve.http.responses import as_json
from serve.routes.jobs import OPEN, counts, links

router = APIRouter()

LARGEST_JSON = 16 * MEGABYTE
LARGEST_UPLOAD = 128 * MEGABYTE
"""Bytes of all files of a request, which lie on this machine's disk while they come."""
UPLOADS = 8
"""Uploads whose bytes are in memory at once; the others wait for them."""
WAITERS = 16
"""Requests of this process that wait for their jobs at once: others are answered at once, as if they had not asked."""
FIRST_LOOK, LAST_LOOK = 0.05, 1.0
"""Seconds between looks at a job that is waited for: few at first, because most are small."""
MOST_FAILURES = 1_000
"""Rows of an answer that tell of files of a source."""

_TRACE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json", re.ASCII | re.IGNORECASE)
_FORM = "multipart/form-data"

_waiting = BoundedSemaphore(WAITERS)
_uploads: RunVar[CapacityLimiter] = RunVar("uploads")


Place: TypeAlias = tuple[str, str]
"""Path and correlation id, for problems."""

TAKEN = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": IngestBody.model_json_schema()},
            _FORM: {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "files": {
                            "type": "array",
                            "maxItems": MOST_DOCUMENTS,
                            "items": {"type": "string", "format": "binary"},
                        },
                        **UploadBody.model_json_schema()["properties"],
                    },
                }
            },
        },
    }
}
ANSWERS: Statuses = {
    200: {"model": Ingested, "description": "With `Prefer: wait`: the job has ended, and every document is in"},
    202: {"model": Ingested, "description": "A job is entered, or still at work; `Location` leads to it"},
    207: {"model": Ingested, "description": "Not every document was taken, or is in: `items` tells of each"},
    **BODY,
}


@router.post("/v1/ingest", status_code=202, responses=ANSWERS, openapi_extra=TAKEN)
async def ingest(request: Request, who: Who, graph: Served, key: Key, wait: Wait) -> Response:
    """Enters a job. The same `id` again is a new version of its document. Without an id its uri is its id, of a file
    its name, else what its bytes hash to: the same text twice is the same document.

    With an `Idempotency-Key` the same request again is the same job, for 24 hours.
    """
    entered = await _entered(request, Asked(who=who, graph=graph, key=key))
    outcome = await _outcome(graph, who, entered, wait) if wait else Outcome()
    body, status = _answer(entered, outcome, (request.url.path, request.state.correlation_id))
    applied = {"Preference-Applied": f"wait={wait}"} if outcome.waited else {}
    return as_json(body, status, {**entered.headers, **applied})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    who: Caller
    graph: Graph
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """What of a request is a job now."""

    received: Received
    accepted: Accepted

    @property
    def job(self) -> UUID:
        return self.accepted.job_id

    @property
    def links(self) -> Mapping[str, str]:
        return links(self.job)

    @property
    def headers(self) -> Mapping[str, str]:
        again = {"Idempotency-Replayed": "true"} if self.accepted.replayed else {}
        return {"Location": self.links["self"], **again}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ended, if it has: `failures` are its documents that are not in, by uri; `counts` are those of
    `rag ingest --json`. `waited`: whether somebody waited for it."""

    waited: bool = False
    status: str = "queued"
    reason: str = ""
    began: bool = False
    counts: Mapping[str, int] | None = None
    failures: Mapping[str, Mapping[str, Any]] | None = None

    @property
    def lacking(self) -> bool:
        """Whether something has ended and is not in."""
        left_out = any((self.counts or {}).get(name) for name in ("failed", "skipped", "quarantined"))
        return left_out or self.status in ("failed", "cancelled")


async def _entered(request: Request, asked: Asked) -> Entered:
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    traces = request.state.correlation_id, _traceparent(request)
    try:
        if _JSON.fullmatch(kind):
            body = await _body(request)
            return await run_in_threadpool(lambda: _enter(asked, received_json(body), *traces))
        if kind.lower() == _FORM:
            async with uploaded(request) as form:
                work = partial(_enter_form, asked, form, *traces)
                return await to_thread.run_sync(work, limiter=_limiter())
    except ClientDisconnect:
        raise HTTPException(400, "the body broke off") from None
    raise HTTPException(415, f"a body must come as application/json or {_FORM}, got {kind or 'no content-type'}")


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_JSON:
            limit = LARGEST_JSON / MEGABYTE
            raise TooLargeError(f"a JSON body must be at most {limit:g} MB; upload files, or name a source")
    return bytes(body)


def _enter_form(asked: Asked, form: Form, correlation_id: str, traceparent: str) -> Entered:
    return _enter(asked, received_form(form.fields, form.uploads()), correlation_id, traceparent)


def _limiter() -> CapacityLimiter:
    try:
        return _uploads.get()
    except LookupError:
        _uploads.set(CapacityLimiter(UPLOADS))
        return _uploads.get()


def _enter(asked: Asked, received: Received, correlation_id: str, traceparent: str) -> Entered:
    """The common problem if there is nothing to be taken of it."""
    if not received.taken and received.source is None:
        raise _common(received.refused)
    settings = _settings(asked.graph, received.profile)
    request = IngestRequest(
        collection=received.collection,
        profile=settings.profile,
        settings=settings.model_dump(mode="json", exclude=NOT_RECORDED),
        documents=tuple(each.document for each in received.taken),
        correlation_id=correlation_id,
        traceparent=traceparent,
    )
    with asked.graph.postgres.connect() as connection:
        queue = Queue(connection, asked.who.tenant)
        accepted = queue.enqueue(_with_source(request, received.source), asked.key, received.fingerprint)
    return Entered(received=received, accepted=accepted)


def _common(refused: Sequence[Refused]) -> Exception:
    if all(each.too_large for each in refused):
        return TooLargeError(refused[0].too_large)
    return RefusedDocumentsError([error for each in refused for error in each.errors])


def _with_source(request: IngestRequest, source: SourceBody | None) -> IngestRequest:
    if source is None:
        return request
    locations = tuple(source.locations)
    return replace(
        request, locations=locations, prune=source.prune, confirmed=source.confirmed, checksum=source.checksum
    )


def _settings(graph: Graph, profile: str) -> Settings:
    if profile in ("", graph.settings.profile):
        return graph.settings
    if profile not in shipped_profiles():
        refuse_profile(profile, {*shipped_profiles(), graph.settings.profile})
    return _profile(profile)


@lru_cache(maxsize=32)
def _profile(name: str) -> Settings:
    """As the environment of this process changes it. The gateway's own file and overrides are of its own profile."""
    return load_settings(profile=name)


def _traceparent(request: Request) -> str:
    given = trace_headers().get("traceparent", request.headers.get("traceparent", ""))
    return given if _TRACE.fullmatch(given) else ""


async def _outcome(graph: Graph, who: Caller, entered: Entered, seconds: int) -> Outcome:
    """How the job stands when it has ended, or the time is over. Between looks at it only this coroutine is held."""
    if not _waiting.acquire(blocking=False):
        return Outcome()
    try:
        return await _waited(graph, who, entered, monotonic() + seconds)
    finally:
        _waiting.release()


async def _waited(graph: Graph, who: Caller, entered: Entered, until: float) -> Outcome:
    status, pause = "queued", FIRST_LOOK
    while True:
        with suppress(StoreError):  # a job outlives that, and so does who waits for it
            status = await run_in_threadpool(_status, graph, who, entered.job)
            if status not in OPEN:
                return await run_in_threadpool(_ended, graph, who, entered)
        left = until - monotonic()
        if left <= 0:
            return Outcome(waited=True, status=status)
        await sleep(min(pause, left))
        pause = min(2 * pause, LAST_LOOK)


def _status(graph: Graph, who: Caller, job: UUID) -> str:
    with ledger(graph, who) as known:
        return str(known.job(str(job))["status"])


def _ended(graph: Graph, who: Caller, entered: Entered) -> Outcome:
    with ledger(graph, who) as known:
        found, done = known.job(str(entered.job)), known.progress(entered.job)
        failures = _failures(known, who, entered)
    return Outcome(
        waited=True,
        status=found["status"],
        reason=found["reason"] or "",
        began=any(done.values()),
        counts=counts(found, done),
        failures={failure["uri"]: failure for failure in failures},
    )


def _failures(known: Ledger, who: Caller, entered: Entered) -> Sequence[Mapping[str, Any]]:
    """Of what came with the request, all; of a source alone, some, of files that the caller may read."""
    if entered.received.taken:
        return known.failures(entered.job, "failed", "skipped", "quarantined")
    return known.some_failures(entered.job, who.groups, UUID(int=0), MOST_FAILURES)


def _answer(entered: Entered, outcome: Outcome, place: Place) -> tuple[Mapping[str, Any], int]:
    received = entered.received
    body = {
        "job_id": entered.job,
        "status": outcome.status,
        "documents": len(received.taken),
        **({"counts": outcome.counts} if outcome.counts is not None else {}),
        "links": entered.links,
    }
    items = [*_rows(received, outcome, place), *_unasked(received, outcome, place)]
    if outcome.lacking or any("problem" in item for item in items):
        return {**body, "items": items}, 207
    return body, 202 if outcome.counts is None else 200


def _rows(received: Received, outcome: Outcome, place: Place) -> list[Mapping[str, Any]]:
    """One for each document of the request, in its order."""
    rows = {each.index: _taken(each, outcome, place) for each in received.taken}
    rows |= {each.index: _refused(each, place) for each in received.refused}
    return [{"index": index, **rows[index]} for index in sorted(rows)]


def _taken(each: Taken, outcome: Outcome, place: Place) -> Mapping[str, Any]:
    id = each.document.id
    if outcome.failures is None:
        return {"id": id, "status": 202}
    if failure := outcome.failures.get(each.document.uri):
        return _row(id, problem(_failed(failure), *place))
    if outcome.status != "completed" and not outcome.began:
        return _row(id, problem(_unfinished(outcome), *place))
    return {"id": id, "status": 200}


def _refused(each: Refused, place: Place) -> Mapping[str, Any]:
    if each.too_large:
        return _row(each.id, problem(TooLargeError(each.too_large), *place))
    return _row(each.id, invalid(RequestValidationError(each.errors), *place))


def _unasked(received: Received, outcome: Outcome, place: Place) -> list[Mapping[str, Any]]:
    """Files of the source that are not in, by uri; and the source itself if its job has come to nothing."""
    pushed = {each.document.uri for each in received.taken}
    failures = [failure for uri, failure in (outcome.failures or {}).items() if uri not in pushed]
    rows = [_row(failure["uri"], problem(_failed(failure), *place)) for failure in failures[:MOST_FAILURES]]
    if outcome.failures is None or outcome.status == "completed" or received.source is None:
        return rows
    return [*(_row(each, problem(_unfinished(outcome), *place)) for each in received.source.locations), *rows]


def _failed(failure: Mapping[str, Any]) -> DocumentError:
    kind = TransientError if failure["retryable"] else DocumentError
    return kind(failure["stage"], failure["reason"], failure["retryable"])


def _unfinished(outcome: Outcome) -> RagError:
    if outcome.status == "cancelled":
        return UnavailableError(f"the job was cancelled: {outcome.reason}")
    return error_from_reason(outcome.reason or "the job failed")


def _row(id: str, told: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"id": id, "status": told["status"], "problem": told}
