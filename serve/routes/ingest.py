"""`/v1/ingest`: queues an ingest job.

The job ingests the documents of the request, a source that the gateway can list, or both.
"""

import re
from dataclasses import dataclass, replace
from functools import partial

from anyio import CapacityLimiter, from_thread, to_thread
from anyio.lowlevel import RunVar
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from rag_core.config import Settings
from rag_core.errors import TooLargeError
from rag_core.storage.queue import IngestRequest, Queue
from rag_core.telemetry.traces import trace_headers
from rag_core.wire.jobs import Ingested
from rag_core.wiring.ingestion import location_rules, record_settings
from serve.authentication.caller import Caller
from serve.bodies.fields import MEGABYTE
from serve.bodies.ingest import MAX_DOCUMENTS, IngestBody, UploadBody
from serve.bodies.ingest_requests import (
    ParsedIngest,
    parse_ingest_form,
    parse_ingest_json,
    raise_unknown_profile,
)
from serve.bodies.openapi import BODY_PROBLEMS, RATE_PROBLEMS, Responses
from serve.bodies.uploads import open_upload_form
from serve.http.dependencies import CurrentProfiles, Ingester
from serve.http.policy import check_bulk
from serve.http.problems import RejectedDocumentsError, describe_problem
from serve.http.rate_limits import charge_request, list_ingest_uses
from serve.http.request_headers import IdempotencyKey, WaitSeconds
from serve.http.responses import json_response
from serve.profiles import ServedProfiles
from serve.routes.ingest_outcome import JobOutcome, Submission, describe_outcome, wait_for_job

router = APIRouter()

MAX_JSON_BYTES = 16 * MEGABYTE
MAX_UPLOAD_BYTES = 128 * MEGABYTE
"""The largest body of a form, in bytes. Its large files are on this machine's disk until they are read."""
MAX_PARALLEL_FORMS = 8
"""The maximum number of form requests whose files are in memory at the same time; further ones wait."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json", re.ASCII | re.IGNORECASE)
_FORM = "multipart/form-data"

_upload_limiter: RunVar[CapacityLimiter] = RunVar("upload_limiter")

REQUEST_BODY = {
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
                            "maxItems": MAX_DOCUMENTS,
                            "items": {"type": "string", "format": "binary"},
                        },
                        **UploadBody.model_json_schema()["properties"],
                    },
                }
            },
        },
    }
}
RESPONSES: Responses = {
    200: {"model": Ingested, "description": "With `Prefer: wait`: the job has ended, all documents are in the index"},
    202: {
        "model": Ingested,
        "description": "The request did not see the job end; `Location` is the job's address",
    },
    207: {
        "model": Ingested,
        "description": "The job failed or was cancelled, or some documents are not in the index: see `items`",
    },
    **BODY_PROBLEMS,
    **RATE_PROBLEMS,
}


@router.post("/v1/ingest", status_code=202, responses=RESPONSES, openapi_extra=REQUEST_BODY)
async def ingest(
    request: Request, caller: Ingester, profiles: CurrentProfiles, key: IdempotencyKey, wait: WaitSeconds
) -> Response:
    """Queues an ingest job. Sending the same `id` again replaces the document.

    A document without an `id` is identified by its `uri`, a file by its name. If that is missing too, the `id` is a
    hash of the bytes, so the same text sent twice is one document. A request that is repeated within 24 hours with the
    same `Idempotency-Key` returns the first job. The same key with another request is an error (422).

    A source, or more documents than `ingestion.bulk_documents`, needs the scope `ingest:bulk` too.
    """
    submission = await _submit(request, caller, profiles, key)
    outcome = await wait_for_job(profiles.own.services, caller, submission, wait) if wait else JobOutcome()
    to_problem = partial(describe_problem, instance=request.url.path, correlation_id=request.state.correlation_id)
    body, status = describe_outcome(submission, outcome, to_problem)
    applied = {"Preference-Applied": f"wait={wait}"} if outcome.waited else {}
    return json_response(body, status, {**submission.headers, **applied})


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """An ingest request with its caller, the served profiles, and the values of its headers."""

    request: Request
    caller: Caller
    profiles: ServedProfiles
    idempotency_key: str
    correlation_id: str
    traceparent: str


async def _submit(request: Request, caller: Caller, profiles: ServedProfiles, idempotency_key: str) -> Submission:
    """Reads the body and queues the job.

    Raises HTTPException if the body is incomplete or its media type is not supported.
    """
    # this request's own span if traces are exported, else the client's
    traceparent = trace_headers().get("traceparent", request.headers.get("traceparent", ""))
    context = RequestContext(
        request=request,
        caller=caller,
        profiles=profiles,
        idempotency_key=idempotency_key,
        correlation_id=request.state.correlation_id,
        traceparent=traceparent if _TRACEPARENT.fullmatch(traceparent) else "",
    )
    media_type = request.headers.get("content-type", "").partition(";")[0].strip()
    try:
        if _JSON.fullmatch(media_type):
            body = await _read_body(request)
            return await run_in_threadpool(lambda: _enqueue(context, parse_ingest_json(body)))
        if media_type.lower() == _FORM:
            async with open_upload_form(request) as form:
                return await to_thread.run_sync(
                    lambda: _enqueue(context, parse_ingest_form(form.fields, form.read_files())),
                    limiter=_get_upload_limiter(),
                )
    except ClientDisconnect:
        raise HTTPException(400, "the client disconnected before the end of the body") from None
    accepted = f"application/json or {_FORM}"
    raise HTTPException(415, f"the content type must be {accepted}, got {media_type or 'no content-type'}")


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_JSON_BYTES:
            limit = MAX_JSON_BYTES / MEGABYTE
            raise TooLargeError(f"a JSON body must have at most {limit:g} MB; upload files or send a source instead")
    return bytes(body)


def _get_upload_limiter() -> CapacityLimiter:
    """One limiter per event loop."""
    try:
        return _upload_limiter.get()
    except LookupError:
        _upload_limiter.set(CapacityLimiter(MAX_PARALLEL_FORMS))
        return _upload_limiter.get()


def _enqueue(context: RequestContext, parsed: ParsedIngest) -> Submission:
    """Queues a job for the source and the valid documents of a request.

    A request without a source and without a valid document raises RejectedDocumentsError. If all its documents are too
    large, it raises TooLargeError instead. Raises LocationError if requests cannot name a location, ScopeError if the
    caller cannot ingest so much, and RateLimitedError if it sends too many documents.
    """
    if not parsed.accepted and parsed.source is None:
        if all(rejected.too_large for rejected in parsed.rejected):
            raise TooLargeError(parsed.rejected[0].too_large)
        raise RejectedDocumentsError([error for rejected in parsed.rejected for error in rejected.errors])
    services, settings = context.profiles.own.services, _profile_settings(context.profiles, parsed.profile)
    new_job = IngestRequest(
        collection=parsed.collection,
        profile=settings.profile,
        settings=record_settings(settings),
        documents=tuple(accepted.document for accepted in parsed.accepted),
        correlation_id=context.correlation_id,
        traceparent=context.traceparent,
        user_id=context.caller.user,
    )
    if source := parsed.source:
        new_job = replace(
            new_job,
            locations=tuple(source.locations),
            prune=source.prune,
            confirmed=source.confirmed,
            checksum=source.checksum,
        )
    check_bulk(context.caller, new_job, services.settings)
    rules = location_rules(services.settings, context.caller.tenant)
    for location in new_job.locations:
        rules.check(location)
    with services.postgres.connect() as connection:
        queue = Queue(connection, context.caller.tenant)
        if not queue.is_replay(context.caller.user, context.idempotency_key):
            from_thread.run(charge_request, context.request, context.caller, *list_ingest_uses(context.caller, new_job))
        job = queue.enqueue(new_job, context.idempotency_key, parsed.fingerprint)
    return Submission(parsed=parsed, job=job)


def _profile_settings(profiles: ServedProfiles, name: str) -> Settings:
    """The settings of a profile, of the gateway's own one if the name is empty.

    Without a name, a profile can be detected for each document. The named one can be one that the gateway does not
    serve. Raises RequestValidationError if there is no such profile.
    """
    settings = profiles.settings_for_ingestion(name)
    if settings is None:
        raise_unknown_profile(name, profiles.names_for_ingestion)
    return settings
