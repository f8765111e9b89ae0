"""`/v1/jobs`: lists, shows, cancels and retries ingest jobs. Jobs are in the store, so any replica can respond."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from anyio import from_thread
from fastapi import APIRouter, Query, Request, Response

from rag_core.config import Settings
from rag_core.errors import ConfigError
from rag_core.ingestion.report import DOCUMENT_STATUSES
from rag_core.storage.queue import Queue, build_retry_request
from rag_core.telemetry.traces import trace_headers
from rag_core.wire.jobs import FailedDocument, Ingested, Job, Jobs, Links, ListedJob, StageWork
from rag_core.wiring.ingestion import settings_from_job
from serve.authentication.caller import Caller
from serve.bodies.openapi import RATE_PROBLEMS, success_response
from serve.http.connections import open_ledger
from serve.http.cursors import NIL_ID, PageParameters, build_listing
from serve.http.dependencies import CurrentServices, Ingester, JobReader
from serve.http.policy import check_bulk
from serve.http.rate_limits import charge_request, list_ingest_uses
from serve.http.responses import json_response
from serve.public_errors import hide_places
from serve.services import Services

router = APIRouter()

ABOVE_ALL_RUNS = str(2**63 - 1)
"""The key before the first row: jobs are listed by falling `run`, their serial number."""
OPEN_STATUSES = ("queued", "running")
KILLED_STATUS = {"status": "failed", "reason": "interrupted"}
"""The status and the reason of a killed job. Rows of the ledger mark such a job with `abandoned`."""


@router.get("/v1/jobs", responses=success_response(Jobs))
def jobs(page: Annotated[PageParameters, Query()], caller: JobReader, services: CurrentServices) -> Response:
    """Lists jobs, newest first."""
    listing = build_listing(services, caller, "run", "jobs")
    before = int(listing.decode_cursor(page.cursor, ABOVE_ALL_RUNS))
    with open_ledger(services, caller) as ledger:
        rows, paging = listing.split_page(ledger.jobs(page.fetch_limit, before), page.limit)
    data = [
        ListedJob(**_summarize_job(row, services.settings), documents=row["documents"], failed=row["failed"])
        for row in rows
    ]
    return json_response(Jobs(data=data, **paging))


@router.get("/v1/jobs/{id}", responses=success_response(Job))
def job(id: UUID, page: Annotated[PageParameters, Query()], caller: JobReader, services: CurrentServices) -> Response:
    """Returns a job with a page of its failed documents, without those that the caller may not read."""
    return json_response(_describe_job(id, page, caller, services))


@router.post("/v1/jobs/{id}/cancel", responses=success_response(Job))
def cancel(id: UUID, caller: Ingester, services: CurrentServices) -> Response:
    """Cancels a job, and returns it. Documents that it has published stay. A job that has ended does not change.

    A killed job, which is shown as `failed`, becomes `cancelled`.
    """
    with open_ledger(services, caller) as ledger:
        ledger.job(str(id))  # raises NotFoundError
        ledger.end(id, "cancelled", "over HTTP")
    return json_response(_describe_job(id, PageParameters(), caller, services))


@router.post("/v1/jobs/{id}/retry", status_code=202, responses=success_response(Ingested, RATE_PROBLEMS, status=202))
def retry(id: UUID, caller: Ingester, services: CurrentServices, request: Request) -> Response:
    """Queues a new job for the documents that failed temporarily, or for everything if the job did not complete.

    If the job's process was killed, the job is first ended as failed. Responds with 422 if the job has not ended, and
    with 404 if there is nothing to retry. The scope `ingest:bulk` and the rate limits apply as to `/v1/ingest`.
    """
    with open_ledger(services, caller) as ledger:
        if ledger.job(str(id))["abandoned"]:
            ledger.end(id, KILLED_STATUS["status"], KILLED_STATUS["reason"])
    retry_request = replace(
        build_retry_request(services.postgres, caller.tenant, id),
        correlation_id=request.state.correlation_id,
        traceparent=trace_headers().get("traceparent", ""),
        user_id=caller.user,
    )
    check_bulk(caller, retry_request, services.settings)
    from_thread.run(charge_request, request, caller, *list_ingest_uses(caller, retry_request))
    with services.postgres.connect() as connection:
        new_job = Queue(connection, caller.tenant).enqueue(retry_request)
    links = job_links(new_job.job_id)
    body = Ingested(job_id=new_job.job_id, status="queued", documents=len(retry_request.documents), links=links)
    return json_response(body, 202, {"Location": links.self_})


def _describe_job(id: UUID, page: PageParameters, caller: Caller, services: Services) -> Job:
    listing = build_listing(services, caller, "document_id", "failures", str(id))
    after = UUID(listing.decode_cursor(page.cursor, NIL_ID))
    with open_ledger(services, caller) as ledger:
        row, progress, stages = ledger.job(str(id)), ledger.progress(id), ledger.stages(id)
        rows = ledger.readable_failures(id, caller.groups, after, page.fetch_limit)
    failures, paging = listing.split_page(rows, page.limit)
    return Job(
        **_summarize_job(row, services.settings),
        counts=count_documents(row, progress),
        stages={stage["stage"]: StageWork.from_row(stage) for stage in stages},
        failures=[FailedDocument.from_row(public_failure(failure)) for failure in failures],
        **paging,
    )


def _summarize_job(row: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The members that all shapes of a job have."""
    job = with_killed_status(row)
    version: str | None
    try:
        version = settings_from_job(row, settings).pipeline_version
    except ConfigError:  # the current rules no longer allow the settings of the job
        version = None
    return {
        "job_id": job["id"],
        "status": job["status"],
        "reason": job["reason"] and hide_places(job["reason"], job["sources"]),
        "collection": job["collection"],
        "profile": job["profile"],
        "profile_version": job["settings"].get("version", ""),
        "pipeline_version": version,
        "created_at": job["created_at"],
        "started_at": job["started_at"],
        "finished_at": job["finished_at"],
    }


def with_killed_status(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of a job with its actual status.

    The store still says `running` for a killed job, until the next sync of its sources; here it is `failed`.
    """
    return {**row, **KILLED_STATUS} if row["abandoned"] else row


def count_documents(row: Mapping[str, Any], progress: Mapping[str, int]) -> dict[str, int]:
    """The counts of a job's documents, with the keys of `documents` in `rag ingest --json`, and `cancelled`."""
    same = row["same"] + progress["same"]  # unread because nothing changed, and read but equal
    counts = {name: progress[name] for name in ("added", "changed", "deleted", *DOCUMENT_STATUSES, "cancelled")}
    return {"listed": progress["added"] + progress["changed"] + same, "same": same, **counts}


def public_failure(failure: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of a failed document with a reason that clients may read."""
    return {**failure, "reason": failure["reason"] and hide_places(failure["reason"], [failure["uri"]])}


def job_links(id: UUID) -> Links:
    return Links(self=f"/v1/jobs/{id}", events=f"/v1/jobs/{id}/events")
