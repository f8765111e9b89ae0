"""The response of `/v1/ingest`: the queued job, or its outcome if the request waited for it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import BoundedSemaphore
from time import monotonic
from typing import Any, TypeAlias
from uuid import UUID

from anyio import sleep
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool

from rag_core.errors import (
    DocumentError,
    RagError,
    StoreError,
    TooLargeError,
    TransientError,
    UnavailableError,
    error_from_reason,
)
from rag_core.storage.queue import EnqueuedJob
from rag_core.wire.jobs import Ingested, Links, Row
from rag_core.wire.problems import Problem
from serve.authentication.caller import Caller
from serve.bodies.ingest_requests import AcceptedDocument, ParsedIngest
from serve.http.connections import open_ledger
from serve.public_errors import hide_places
from serve.routes.jobs import OPEN_STATUSES, count_documents, job_links
from serve.services import Services

MAX_WAITERS = 16
"""The maximum number of requests of this process that wait for jobs at once. Others are answered without waiting."""
FIRST_PAUSE, MAX_PAUSE = 0.05, 1.0
"""Seconds between two reads of a job. Pauses are short at first, because most jobs are small."""
MAX_SOURCE_ITEMS = 1_000
"""A response lists at most this many files of a source."""

_waiters = BoundedSemaphore(MAX_WAITERS)

ToProblem: TypeAlias = Callable[[Exception], Problem]
"""Converts an error to the problem of the current request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A parsed request, and the job that was queued for it."""

    parsed: ParsedIngest
    job: EnqueuedJob

    @property
    def links(self) -> Links:
        return job_links(self.job.job_id)

    @property
    def headers(self) -> Mapping[str, str]:
        replayed = {"Idempotency-Replayed": "true"} if self.job.replayed else {}
        return {"Location": self.links.self_, **replayed}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """The state of a job when the request stopped waiting for it.

    `waited`: the request waited for the job. `has_items`: the job had recorded the documents that it processes.
    `counts` has the keys of `documents` in `rag ingest --json`. `failures` has files and documents by uri. Both are
    None if the job has not ended.

    For a request with documents, `failures` are all that failed, were skipped or quarantined. For a request with only a
    source, they are at most `MAX_SOURCE_ITEMS` failed files that the caller may read.
    """

    waited: bool = False
    status: str = "queued"
    reason: str = ""
    has_items: bool = False
    counts: Mapping[str, int] | None = None
    failures: Mapping[str, Mapping[str, Any]] | None = None

    @property
    def has_failed_parts(self) -> bool:
        """True if the job failed or was cancelled, or if some of its documents are not in the index."""
        has_failures = any((self.counts or {}).get(name) for name in ("failed", "skipped", "quarantined"))
        return has_failures or self.status in ("failed", "cancelled")


async def wait_for_job(services: Services, caller: Caller, submission: Submission, seconds: int) -> JobOutcome:
    """Returns the outcome when the job ends, or the job's state after `seconds`.

    Returns at once if `MAX_WAITERS` requests are waiting already. Holds no thread and no connection between two reads.
    """
    if not _waiters.acquire(blocking=False):
        return JobOutcome()
    deadline = monotonic() + seconds
    status = "queued"
    pause = FIRST_PAUSE
    try:
        while True:
            with suppress(StoreError):  # the job continues when the store is available again: keep waiting
                status = await run_in_threadpool(_read_status, services, caller, submission.job.job_id)
                if status not in OPEN_STATUSES:
                    return await run_in_threadpool(_read_outcome, services, caller, submission)
            seconds_left = deadline - monotonic()
            if seconds_left <= 0:
                return JobOutcome(waited=True, status=status)
            await sleep(min(pause, seconds_left))
            pause = min(2 * pause, MAX_PAUSE)
    finally:
        _waiters.release()


def _read_status(services: Services, caller: Caller, job_id: UUID) -> str:
    with open_ledger(services, caller) as ledger:
        return str(ledger.job(str(job_id))["status"])


def _read_outcome(services: Services, caller: Caller, submission: Submission) -> JobOutcome:
    """Reads the outcome of a job that has ended.

    The failures are those of the request's own documents, which can be skipped or quarantined too, and the failed files
    of its source that the caller may read.
    """
    job_id, parsed = submission.job.job_id, submission.parsed
    pushed = {accepted.document.uri for accepted in parsed.accepted}
    failures: list[dict[str, Any]] = []
    with open_ledger(services, caller) as ledger:
        row, progress = ledger.job(str(job_id)), ledger.progress(job_id)
        if pushed:
            ended = ledger.failures(job_id, "failed", "skipped", "quarantined", "cancelled")
            failures += [failure for failure in ended if failure["uri"] in pushed]
        if parsed.source:
            failures += ledger.readable_failures(job_id, caller.groups, UUID(int=0), MAX_SOURCE_ITEMS)
    return JobOutcome(
        waited=True,
        status=row["status"],
        reason=hide_places(row["reason"] or "", row["sources"]),
        has_items=any(progress.values()),
        counts=count_documents(row, progress),
        failures={failure["uri"]: failure for failure in failures},
    )


def describe_outcome(submission: Submission, outcome: JobOutcome, to_problem: ToProblem) -> tuple[Ingested, int]:
    """The body and the status of the response.

    The status is 207 if the job failed or was cancelled, or if a document was rejected or not indexed. Otherwise it is
    200 if the request saw the job end, else 202.
    """
    parsed = submission.parsed
    body = Ingested(
        job_id=submission.job.job_id,
        status=outcome.status,
        documents=len(parsed.accepted),
        links=submission.links,
        **({"counts": outcome.counts} if outcome.counts is not None else {}),
    )
    items = [*_document_items(parsed, outcome, to_problem), *_source_items(parsed, outcome, to_problem)]
    if outcome.has_failed_parts or any(item.problem for item in items):
        return body.model_copy(update={"items": items}), 207
    return body, 202 if outcome.counts is None else 200


def _document_items(parsed: ParsedIngest, outcome: JobOutcome, to_problem: ToProblem) -> list[Row]:
    """One item per document of the request, in its order."""
    items = {accepted.index: _describe_accepted(accepted, outcome, to_problem) for accepted in parsed.accepted}
    for rejected in parsed.rejected:
        too_large = TooLargeError(rejected.too_large) if rejected.too_large else None
        error = too_large or RequestValidationError(rejected.errors)
        items[rejected.index] = _problem_item(rejected.id, to_problem(error))
    return [items[index].model_copy(update={"index": index}) for index in sorted(items)]


def _describe_accepted(accepted: AcceptedDocument, outcome: JobOutcome, to_problem: ToProblem) -> Row:
    """The item of an accepted document.

    Its status is 202 until the job has ended, then 200. A failure of the document replaces it. So does the job's error
    if the job ended before it recorded its documents.
    """
    id = accepted.document.id
    if outcome.failures is None:
        return Row(id=id, status=202)
    if failure := outcome.failures.get(accepted.document.uri):
        return _problem_item(id, to_problem(_document_error(failure)))
    if outcome.status != "completed" and not outcome.has_items:
        return _problem_item(id, to_problem(_job_error(outcome)))
    return Row(id=id, status=200)


def _source_items(parsed: ParsedIngest, outcome: JobOutcome, to_problem: ToProblem) -> list[Row]:
    """One item per location if the job did not complete, then one per file in `failures`.

    Lists at most `MAX_SOURCE_ITEMS` files.
    """
    pushed = {accepted.document.uri for accepted in parsed.accepted}
    failures = [failure for uri, failure in (outcome.failures or {}).items() if uri not in pushed]
    items = [
        _problem_item(failure["uri"], to_problem(_document_error(failure))) for failure in failures[:MAX_SOURCE_ITEMS]
    ]
    if outcome.failures is None or outcome.status == "completed" or parsed.source is None:
        return items
    locations = [_problem_item(uri, to_problem(_job_error(outcome))) for uri in parsed.source.locations]
    return [*locations, *items]


def _document_error(failure: Mapping[str, Any]) -> DocumentError:
    kind = TransientError if failure["retryable"] else DocumentError
    reason = hide_places(failure["reason"], [failure["uri"]])
    return kind(failure["stage"], reason, failure["retryable"])


def _job_error(outcome: JobOutcome) -> RagError:
    if outcome.status == "cancelled":
        # 503: sending the document again can succeed
        return UnavailableError(f"the job was cancelled: {outcome.reason}")
    return error_from_reason(outcome.reason or "the job failed")


def _problem_item(id: str, problem: Problem) -> Row:
    return Row(id=id, status=problem.status, problem=problem)
