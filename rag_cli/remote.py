"""A gateway somewhere else, asked over HTTP."""

import json
import mimetypes
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import unquote
from uuid import UUID, uuid4

import httpx2
import stamina

from rag_core.errors import NotFoundError, RagError, TooLargeError, UnavailableError, UsageError
from rag_core.events import (
    CitationAdded,
    Event,
    Grounding,
    RunFailed,
    RunFinished,
    RunStarted,
    Sources,
    StageFinished,
    TextDelta,
    TextRetracted,
)
from rag_core.types import Chunk, Citation, Claim, Hit, Origin, Passage, Query, StageReport, Verdict

TIMEOUT = httpx2.Timeout(10.0, read=120.0)
ATTEMPTS = 4
PATIENCE = 60.0
"""Seconds that a job's events may be away, before who follows it gives up."""
AGAIN = 0.5
"""Seconds between connections to the same events."""
MOST_ROWS = 200
UNKNOWN = "application/octet-stream"


def retrieved(server: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """As `/v1/retrieve` answers. RagError as the problem that it has says, or if it cannot be reached."""
    with _client(server) as client:
        response = client.post("/v1/retrieve", json=dict(body))
        _check(response)
        found: dict[str, Any] = response.json()
        return found


def answered(server: str, body: Mapping[str, Any]) -> Iterator[Event]:
    """The events of `/v1/answer`, but for those that say only what it does. Raises what `retrieved` does."""
    with _client(server) as client, client.stream("POST", "/v1/answer", json={**body, "stream": True}) as response:
        if response.status_code != httpx2.codes.OK:
            response.read()
        _check(response)
        name = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield from _event(name, json.loads(line.removeprefix("data: ")))
                if name == "run_finished":
                    return  # what follows says only that it broke off


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    uri: str
    body: bytes

    @property
    def part(self) -> tuple[str, tuple[str, bytes, str]]:
        """The name, the body and the media type of a form's file."""
        return "files", (self.uri, self.body, mimetypes.guess_type(unquote(self.uri))[0] or UNKNOWN)


def reachable(server: str) -> None:
    """UnavailableError, at once, if nobody is there."""
    with _client(server) as client:
        _check(client.get("/healthz"))


def sent_files(server: str, fields: Mapping[str, str], files: Sequence[File]) -> dict[str, Any]:
    """As `/v1/ingest` answers; of a request of which every file was refused only `items`."""

    def post(client: httpx2.Client, headers: Mapping[str, str]) -> dict[str, Any]:
        parts = [file.part for file in files]
        response = client.post("/v1/ingest", data=dict(fields), files=parts, headers=headers)
        return _refused_files(response) or _answer(response)

    return _sent(server, post)


def sent_source(server: str, body: Mapping[str, Any]) -> dict[str, Any]:
    return _sent(server, lambda client, headers: _answer(client.post("/v1/ingest", json=dict(body), headers=headers)))


def job_events(server: str, job: str) -> Iterator[Mapping[str, Any]]:
    """Until the job has ended, each once, over as many connections as it takes. UnavailableError if there is none for
    PATIENCE seconds."""
    last, lost = "", 0.0
    while True:
        try:
            for number, event in _events(server, job, last):
                last, lost = number, 0.0
                if event:
                    yield event
            if _job(server, job)["status"] not in ("queued", "running"):
                return
        except UnavailableError:
            lost = lost or time.monotonic()
            if time.monotonic() - lost > PATIENCE:
                raise
        time.sleep(AGAIN)


def ended_job(server: str, job: str) -> dict[str, Any]:
    """With all its failures."""
    found = _job(server, job)
    cursor = found["next_cursor"]
    while cursor:
        page = _job(server, job, cursor)
        found["failures"] += page["failures"]
        cursor = page["next_cursor"]
    return found


def cancelled(server: str, job: str) -> None:
    with _client(server) as client:
        _check(client.post(f"/v1/jobs/{job}/cancel"))


def _sent(server: str, post: Callable[[httpx2.Client, Mapping[str, str]], dict[str, Any]]) -> dict[str, Any]:
    """Sent again, under the same key, where the answer may have been lost."""
    headers = {"Idempotency-Key": str(uuid4())}
    answer: dict[str, Any] = {}
    for attempt in stamina.retry_context(on=UnavailableError, attempts=ATTEMPTS, wait_initial=0.5, wait_max=5.0):
        with attempt, _client(server) as client:
            answer = post(client, headers)
    return answer


def _answer(response: httpx2.Response) -> dict[str, Any]:
    _check(response)
    answer: dict[str, Any] = response.json()
    return answer


def _refused_files(response: httpx2.Response) -> dict[str, Any]:
    """The rows of a request of which nothing was taken; empty if that is not so."""
    if response.status_code != httpx2.codes.UNPROCESSABLE_CONTENT:
        return {}
    told = [(error["pointer"].split("/"), error["detail"]) for error in response.json().get("errors", ())]
    files = [(int(place[2]), detail) for place, detail in told if place[1] == "files" and len(place) > 2]
    return {"items": [{"index": index, "problem": {"detail": detail}} for index, detail in files]} if files else {}


def _job(server: str, job: str, cursor: str = "") -> dict[str, Any]:
    with _client(server) as client:
        return _answer(client.get(f"/v1/jobs/{job}", params={"limit": MOST_ROWS, "cursor": cursor}))


def _events(server: str, job: str, last: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """With their numbers. The first is empty, and says that somebody is there."""
    headers = {"Last-Event-ID": last} if last else {}
    with _client(server) as client, client.stream("GET", f"/v1/jobs/{job}/events", headers=headers) as response:
        if not response.is_success:
            response.read()
        _check(response)
        number = last
        yield number, {}
        for line in response.iter_lines():
            if line.startswith("id: "):
                number = line.removeprefix("id: ")
            elif line.startswith("data: "):
                yield number, json.loads(line.removeprefix("data: "))


def hits(found: Mapping[str, Any]) -> list[Hit]:
    return [_hit(each) for each in found["results"]]


@contextmanager
def _client(server: str) -> Iterator[httpx2.Client]:
    try:
        with httpx2.Client(base_url=server, timeout=TIMEOUT) as client:
            yield client
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise UnavailableError(f"the server at {server} cannot be asked: {error}") from error


def _check(response: httpx2.Response) -> None:
    if response.is_success:
        return
    try:
        detail = str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"the server answered with status {response.status_code}"
    kinds: Mapping[int, type[RagError]] = {400: UsageError, 404: NotFoundError, 413: TooLargeError, 422: UsageError}
    raise kinds.get(response.status_code, UnavailableError)(detail)


def _event(name: str, told: Mapping[str, Any]) -> Iterator[Event]:
    match name:
        case "run_started":
            yield RunStarted(Query(text=told["question"], collection=told["collection"]))
        case "stage_finished":
            yield StageFinished(_report(told))
        case "sources":
            yield Sources(tuple(map(_passage, told["items"])))
        case "text_delta":
            yield TextDelta(told["text"])
        case "citation_added":
            yield CitationAdded(_citation(told["citation"]))
        case "text_retracted":
            yield TextRetracted(told["reason"])
        case "grounding":
            yield Grounding(_verdict(told))
        case "run_failed":
            yield RunFailed(told["detail"])
            raise UnavailableError(told["detail"])
        case "run_finished":
            seconds = told["timings_ms"]["total"] / 1000
            yield RunFinished(told["finish_reason"], told["confidence"], seconds)


def _report(told: Mapping[str, Any]) -> StageReport:
    return StageReport(
        stage=told["stage"],
        seconds=told["ms"] / 1000,
        error=told["error"],
        parent=told["parent"],
        started=told["began_ms"] / 1000,
        skipped=told["skipped"],
        figures=told["figures"],
        **({"allowed": told["limit_ms"] / 1000} if told["limit_ms"] is not None else {}),
    )


def _citation(told: Mapping[str, Any]) -> Citation:
    return Citation(
        n=told["n"],
        chunk_id=UUID(told["chunk_id"]),
        document_id=UUID(told["document_id"]),
        collection=told["collection"],
        title=told["title"],
        uri=told["url"],
        quote=told["quote"],
        start=told["start"],
        end=told["end"],
        spans=tuple(_span(span) for span in told["spans"]),
        claim=_span(told["claim"]),
        score=told["score"],
        page=told["page"],
        section=told["section"],
        updated_at=_moment(told["updated_at"]),
        grade=told["verdict"],
    )


def _verdict(told: Mapping[str, Any]) -> Verdict:
    claims = tuple(
        Claim(
            start=claim["start"],
            end=claim["end"],
            grade=claim["verdict"],
            score=claim["score"],
            reason=claim["reason"],
        )
        for claim in told["claims"]
    )
    return Verdict(grade=told["verdict"], score=told["score"], claims=claims, method=told["method"])


def _hit(told: Mapping[str, Any]) -> Hit:
    about = {name: told[name] for name in ("page", "section") if told[name] is not None}
    chunk = Chunk(
        id=UUID(told["chunk_id"]),
        document_id=UUID(told["document_id"]),
        ordinal=0,
        text=told["text"],
        start=told["start"],
        end=told["end"],
        metadata=about,
    )
    return Hit(chunk=chunk, origin=Origin(uri=told["url"], title=told["title"]), score=told["score"])


def _passage(told: Mapping[str, Any]) -> Passage:
    hit = replace(_hit(told), scores=told["scores"])
    hit = replace(hit, origin=replace(hit.origin, updated_at=_moment(told["updated_at"])))
    chunks = tuple(replace(hit.chunk, id=UUID(id)) for id in told["chunk_ids"])
    return Passage(n=told["n"], hit=hit, text=told["text"], start=told["start"], chunks=chunks)


def _span(told: Mapping[str, int]) -> tuple[int, int]:
    return told["start"], told["end"]


def _moment(told: str | None) -> datetime | None:
    return datetime.fromisoformat(told) if told else None
