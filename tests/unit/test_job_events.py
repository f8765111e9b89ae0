"""The events of a job on a server that breaks off again and again."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest

from rag_cli.server_client import job_events, read_ended_job
from rag_core.errors import NotFoundError, ResponseError, UnavailableError
from rag_core.wire.jobs import Job

Connection = tuple[int, Sequence[int], bool]
"""A status, the numbers of the events that are sent, and whether it ends regularly."""


AT = "2026-11-24T09:00:00Z"
JOB = {
    "job_id": str(UUID(int=1)),
    "reason": None,
    "collection": "default",
    "profile": "default",
    "pipeline_version": None,
    "created_at": AT,
    "started_at": AT,
    "finished_at": None,
    "counts": {},
    "stages": {},
    "failures": [],
    "next_cursor": None,
    "has_more": False,
}
EVENT = {
    "job_id": str(UUID(int=1)),
    "stage": "parse",
    "status": "running",
    "timestamp": AT,
    "done": 1,
    "total": 2,
    "failed": 0,
    "chunks": 3,
    "docs_per_s": 1.0,
    "eta_s": None,
}


class ScriptedServer(ThreadingHTTPServer):
    """A server with one scripted connection after the other, and then a job that has ended."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        super().__init__(("127.0.0.1", 0), ScriptedHandler)
        self.connections, self.seen = list(connections), list[str | None]()


class ScriptedHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def do_GET(self) -> None:
        if self.path.endswith("/events"):
            self._events()
        else:
            self._send(200, json.dumps(JOB | {"status": "running" if self.server.connections else "completed"}))

    def _events(self) -> None:
        self.server.seen.append(self.headers["Last-Event-ID"])
        status, numbers, is_complete = self.server.connections.pop(0)
        text = "".join(
            f"id: {number}\nevent: job.progress\ndata: {json.dumps(EVENT | {'seq': number})}\n\n" for number in numbers
        )
        self._send(status, text if status == 200 else '{"detail": "it is so"}', 0 if is_complete else 100)

    def _send(self, status: int, text: str, missing: int = 0) -> None:
        """`missing` bytes are announced and never come."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(text) + missing))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


@contextmanager
def run_scripted_server(*connections: Connection) -> Iterator[tuple[str, ScriptedServer]]:
    with ScriptedServer(connections) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_cli.server_client.RECONNECT_SECONDS", 0.01)


def test_each_event_is_yielded_once_over_connections_that_break_off() -> None:
    with run_scripted_server((200, [1, 2], False), (503, [], True), (200, [], True), (200, [3], True)) as (url, server):
        assert [event.seq for event in job_events(url, "j")] == [1, 2, 3]
    assert server.seen == [None, "2", "2", "2"]


def test_a_server_that_stays_unreachable_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_cli.server_client.EVENTS_TIMEOUT", 0.05)
    with run_scripted_server(*[(503, [], True)] * 1000) as (url, _), pytest.raises(UnavailableError, match="it is so"):
        list(job_events(url, "j"))


def test_the_time_limit_is_for_an_unreachable_server_and_not_for_a_silent_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rag_cli.server_client.RECONNECT_SECONDS", 0.1)
    monkeypatch.setattr("rag_cli.server_client.EVENTS_TIMEOUT", 0.05)
    quiet: Connection = (200, [], True)
    cut: Connection = (200, [], False)
    with run_scripted_server((200, [1], True), quiet, cut, cut, quiet, cut, (200, [2], True)) as (url, _):
        assert [event.seq for event in job_events(url, "j")] == [1, 2]


def test_a_job_that_is_not_there_is_not_waited_for() -> None:
    with run_scripted_server((404, [], True)) as (url, _), pytest.raises(NotFoundError, match="it is so"):
        list(job_events(url, "j"))


def test_a_server_that_is_not_a_gateway_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(JOB, "counts", None)
    with (
        run_scripted_server((200, [1], True)) as (url, server),
        pytest.raises(ResponseError, match=r"invalid: Job\.counts: "),
    ):
        list(job_events(url, "j"))
    assert server.seen == [None]


def test_a_job_has_the_failures_of_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    def page(uri: str, cursor: str | None) -> Job:
        failure = {"uri": uri, "stage": "parse", "reason": "empty", "retryable": False}
        return Job.decode(JOB | {"status": "completed", "failures": [failure], "next_cursor": cursor})

    pages = {"": page("a", "after a"), "after a": page("b", "after b"), "after b": page("c", None)}
    monkeypatch.setattr("rag_cli.server_client._request_job", lambda *position: pages["".join(position[2:])])
    assert [failure.uri for failure in read_ended_job("http://gateway", "j").failures] == ["a", "b", "c"]
    assert [len(page.failures) for page in pages.values()] == [1, 1, 1]
