"""Requests to a gateway over HTTP."""

import json
import logging
import mimetypes
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote
from uuid import uuid4

import httpx2
import stamina

from rag_core.errors import UnavailableError, UsageError
from rag_core.events import Event, RunFailed, RunFinished
from rag_core.wire.events import decode_event
from rag_core.wire.feedback import FeedbackId
from rag_core.wire.jobs import Ingested, Job, JobEvent
from rag_core.wire.problems import Problem
from rag_core.wire.responses import (
    API_KEY_VARIABLE,
    bearer_header,
    check_response,
    read_object,
    read_response,
    retry_seconds,
)
from rag_core.wire.retrieval import Retrieval

TIMEOUT = httpx2.Timeout(10.0, read=120.0)
ATTEMPTS = 4
EVENTS_TIMEOUT = 60.0
"""Seconds without a connection after which `job_events` raises UnavailableError."""
RECONNECT_SECONDS = 0.5
"""Seconds between connections to the events of a job."""
MAX_PAGE_ROWS = 200
MAX_RATE_LIMIT_WAIT = 900.0
"""Seconds that a request waits altogether for the server's rate limits. The largest batch of files needs 10 minutes."""
UNKNOWN_MEDIA_TYPE = "application/octet-stream"

_log = logging.getLogger(__name__)

_FILE_POINTER = re.compile(r"#/files/(\d+)")


def request_retrieval(server: str, body: Mapping[str, Any]) -> Retrieval:
    """The response of `/v1/retrieve`.

    Raises the RagError that belongs to the response's status, and UnavailableError if the server cannot be reached.
    """
    with _open_client(server) as client:
        return Retrieval.decode(read_response(client.post("/v1/retrieve", json=dict(body))))


def stream_answer(server: str, body: Mapping[str, Any]) -> Iterator[Event]:
    """Yields the events of `/v1/answer`, without those that only show progress.

    Raises the errors of `request_retrieval`.
    """
    with _open_client(server) as client, client.stream("POST", "/v1/answer", json={**body, "stream": True}) as response:
        if response.status_code != httpx2.codes.OK:
            response.read()
        check_response(response)
        name = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                event = decode_event(name, json.loads(line.removeprefix("data: ")))
                if event:
                    yield event
                if isinstance(event, RunFailed):
                    raise UnavailableError(event.error)
                if isinstance(event, RunFinished):
                    return  # afterwards, only an error about the end of the stream can follow


def send_feedback(server: str, body: Mapping[str, Any]) -> FeedbackId:
    """The response of `/v1/feedback`. Raises the errors of `request_retrieval`."""
    with _open_client(server) as client:
        return FeedbackId.decode(read_response(client.post("/v1/feedback", json=dict(body))))


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file to send. `access` holds the groups that can read it; None: the rules of the gateway decide."""

    uri: str
    body: bytes
    access: Sequence[str] | None = None

    @property
    def part(self) -> tuple[str, tuple[str, bytes, str]]:
        """The file as a part of a form: the name of the field, then the file's name, body and media type."""
        return "files", (self.uri, self.body, mimetypes.guess_type(unquote(self.uri))[0] or UNKNOWN_MEDIA_TYPE)


def check_server(server: str) -> None:
    """Raises UnavailableError at once if the server cannot be reached."""
    with _open_client(server) as client:
        check_response(client.get("/healthz"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The response of `/v1/ingest`: the job, which is empty if every file was rejected, and its number of documents.

    `rejected` has the reasons for the rejections, by the position of the file.
    """

    job: str = ""
    documents: int = 0
    rejected: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def from_response(cls, response: httpx2.Response) -> Self:
        """Raises ResponseError if the response is invalid, or the RagError that belongs to its status."""
        if response.status_code == httpx2.codes.UNPROCESSABLE_CONTENT:
            rules = Problem.decode(read_object(response)).errors or []
            rejected = {int(match[1]): rule.detail for rule in rules if (match := _FILE_POINTER.match(rule.pointer))}
            if rejected:
                return cls(rejected=rejected)
        ingested = Ingested.decode(read_response(response))
        rows = ingested.items or []
        rejected = {row.index: row.problem.detail for row in rows if row.problem and row.index is not None}
        return cls(job=str(ingested.job_id), documents=ingested.documents, rejected=rejected)


def send_files(server: str, fields: Mapping[str, str], files: Sequence[File]) -> Receipt:
    parts = [file.part for file in files]
    return _post_with_retries(
        server, lambda client, headers: client.post("/v1/ingest", data=dict(fields), files=parts, headers=headers)
    )


def send_source(server: str, body: Mapping[str, Any]) -> Receipt:
    return _post_with_retries(
        server, lambda client, headers: client.post("/v1/ingest", json=dict(body), headers=headers)
    )


def job_events(server: str, job: str) -> Iterator[JobEvent]:
    """Yields each event of the job once, until it has ended, over as many connections as necessary.

    Raises UnavailableError if there is no connection for `EVENTS_TIMEOUT` seconds.
    """
    last_id, disconnected_at = "", 0.0
    while True:
        try:
            for id, event in _stream_events(server, job, last_id):
                last_id, disconnected_at = id, 0.0
                if event:
                    yield event
            if _request_job(server, job).status not in ("queued", "running"):
                return
        except UnavailableError:
            disconnected_at = disconnected_at or time.monotonic()
            if time.monotonic() - disconnected_at > EVENTS_TIMEOUT:
                raise
        time.sleep(RECONNECT_SECONDS)


def read_ended_job(server: str, job: str) -> Job:
    """The job with all pages of its failures."""
    page = _request_job(server, job)
    failures = list(page.failures)
    while page.next_cursor:
        page = _request_job(server, job, page.next_cursor)
        failures += page.failures
    return page.model_copy(update={"failures": failures})


def cancel_job(server: str, job: str) -> None:
    with _open_client(server) as client:
        check_response(client.post(f"/v1/jobs/{job}/cancel"))


def _post_with_retries(server: str, post: Callable[[httpx2.Client, Mapping[str, str]], httpx2.Response]) -> Receipt:
    """Posts again if the server is unavailable.

    All attempts have the same idempotency key, because the server may have received an earlier one.
    """
    headers = {"Idempotency-Key": str(uuid4())}
    receipt = Receipt()
    for attempt in stamina.retry_context(on=UnavailableError, attempts=ATTEMPTS, wait_initial=0.5, wait_max=5.0):
        with attempt, _open_client(server) as client:
            receipt = Receipt.from_response(post(client, headers))
    return receipt


def _request_job(server: str, job: str, cursor: str = "") -> Job:
    with _open_client(server) as client:
        response = client.get(f"/v1/jobs/{job}", params={"limit": MAX_PAGE_ROWS, "cursor": cursor})
        return Job.decode(read_response(response))


def _stream_events(server: str, job: str, last_id: str) -> Iterator[tuple[str, JobEvent | None]]:
    """Yields the ids and data of the events after `last_id`.

    The first pair has `last_id` and no data. It confirms the connection.
    """
    headers = {"Last-Event-ID": last_id} if last_id else {}
    with _open_client(server) as client, client.stream("GET", f"/v1/jobs/{job}/events", headers=headers) as response:
        if not response.is_success:
            response.read()
        check_response(response)
        id = last_id
        yield id, None
        for line in response.iter_lines():
            if line.startswith("id: "):
                id = line.removeprefix("id: ")
            elif line.startswith("data: "):
                yield id, JobEvent.decode(json.loads(line.removeprefix("data: ")))


@contextmanager
def _open_client(server: str) -> Iterator[httpx2.Client]:
    if not server.startswith(("http://", "https://")):
        raise UsageError(f"--server must be a URL such as http://127.0.0.1:8000, got {server!r}")
    try:
        with RateLimitedClient(base_url=server, timeout=TIMEOUT, headers=_credentials()) as client:
            yield client
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        hint = "; `rag serve` starts one" if isinstance(error, httpx2.ConnectError) else ""
        raise UnavailableError(f"cannot reach the server at {server}: {error}{hint}") from error


class RateLimitedClient(httpx2.Client):
    """A client that sends a request again when the server's rate limit has room for it.

    The server has done nothing for a request with status 429, so it is safe to send it again.
    """

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Returns the response with status 429 if the waits would be longer than `MAX_RATE_LIMIT_WAIT`."""
        waited = 0.0
        while True:
            response = super().send(request, **options)
            seconds = retry_seconds(response)
            if response.status_code != httpx2.codes.TOO_MANY_REQUESTS or waited + seconds > MAX_RATE_LIMIT_WAIT:
                return response
            response.close()
            _log.warning("the server's rate limit is reached: waiting %g s", seconds)
            time.sleep(seconds)
            waited += seconds


def _credentials() -> Mapping[str, str]:
    """The key is not an option: other users of the machine can read command lines."""
    return bearer_header(os.environ.get(API_KEY_VARIABLE, ""), API_KEY_VARIABLE)
