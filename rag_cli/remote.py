"""A gateway somewhere else, asked over HTTP."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import httpx2

from rag_core.errors import NotFoundError, RagError, UnavailableError, UsageError
from rag_core.events import (
    CitationAdded,
    Event,
    Grounding,
    RunFailed,
    RunFinished,
    RunStarted,
    StageFinished,
    TextDelta,
    TextRetracted,
)
from rag_core.types import Chunk, Citation, Claim, Hit, Origin, Query, StageReport, Verdict

TIMEOUT = httpx2.Timeout(10.0, read=120.0)


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
    if response.status_code == httpx2.codes.OK:
        return
    try:
        detail = str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"the server answered with status {response.status_code}"
    kinds: Mapping[int, type[RagError]] = {404: NotFoundError, 422: UsageError}
    raise kinds.get(response.status_code, UnavailableError)(detail)


def _event(name: str, told: Mapping[str, Any]) -> Iterator[Event]:
    match name:
        case "run_started":
            yield RunStarted(Query(text=told["question"], collection=told["collection"]))
        case "stage_finished":
            yield StageFinished(_report(told))
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
        began=told["began_ms"] / 1000,
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


def _span(told: Mapping[str, int]) -> tuple[int, int]:
    return told["start"], told["end"]


def _moment(told: str | None) -> datetime | None:
    return datetime.fromisoformat(told) if told else None
