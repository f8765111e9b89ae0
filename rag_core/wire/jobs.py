"""The shapes of ingest jobs: accepted requests, jobs, and the events of a job."""

from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

from pydantic import Field

from rag_core.wire.problems import Problem
from rag_core.wire.shape import Page, Shape

JobStatus: TypeAlias = Literal["queued", "running", "completed", "failed", "cancelled"]
Counts: TypeAlias = dict[str, int]
"""Numbers of documents, with the keys of `documents` in `rag ingest --json`, and `cancelled`."""


class Links(Shape):
    self_: str = Field(alias="self")
    events: str


class Row(Shape):
    """The outcome for a document of the request, or for a file of a source, which has no index."""

    index: int | None = Field(None, description="the position among the documents, or files, of the request")
    id: str
    status: int
    problem: Problem | None = None


class Ingested(Shape):
    """An accepted request. `documents` is the number of its documents that were accepted."""

    job_id: UUID
    status: JobStatus
    documents: int
    counts: Counts | None = Field(None, description="present if the request waited for the job to end")
    links: Links
    items: list[Row] | None = Field(None, description="present if a document was rejected, or is not in the index")


class JobSummary(Shape):
    """A job, with the profile that it was accepted with.

    `pipeline_version` is null if its settings are no longer valid.
    """

    job_id: UUID
    status: JobStatus
    reason: str | None
    collection: str
    profile: str
    profile_version: str = Field("", description="empty if the profile has no version")
    pipeline_version: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class ListedJob(JobSummary):
    """A job of a list. `documents` and `failed` count its documents."""

    documents: int
    failed: int


class Jobs(Page):
    data: list[ListedJob]


class StageWork(Shape):
    """The work of a stage: seconds summed over processes, the number of documents done, and its start and end.

    `started_at` and `finished_at` are null for jobs of older versions.
    """

    seconds: float
    done: int
    started_at: datetime | None
    finished_at: datetime | None


class FailedDocument(Shape):
    uri: str
    stage: str
    reason: str
    retryable: bool


class Job(JobSummary):
    """A job with a page of its failed documents."""

    counts: Counts
    stages: dict[str, StageWork]
    failures: list[FailedDocument]
    next_cursor: str | None
    has_more: bool


class JobEvent(Shape):
    """An event of a job, with the job's progress at the time of the read.

    `attempt` belongs to the start of a job, `reason` to its end, and `document` to a document that failed.
    """

    job_id: UUID
    seq: int
    stage: str
    status: str
    attempt: int | None = None
    reason: str | None = None
    document: dict[str, Any] | None = None
    timestamp: datetime
    done: int
    total: int
    failed: int
    chunks: int
    docs_per_s: float
    eta_s: float | None
