"""Conversion of a gateway's JSON to hits and events."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from math import inf
from typing import Any
from uuid import UUID

from rag_core.errors import UnavailableError
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


def hits_from_json(retrieval: Mapping[str, Any]) -> list[Hit]:
    return [_hit_from_json(row) for row in retrieval["results"]]


def events_from_json(name: str, data: Mapping[str, Any]) -> Iterator[Event]:
    """Yields the event with this name, if the fold of a reply needs it. Raises UnavailableError after RunFailed."""
    match name:
        case "run_started":
            yield RunStarted(Query(text=data["question"], collection=data["collection"]))
        case "stage_finished":
            yield StageFinished(_report_from_json(data))
        case "sources":
            yield Sources(tuple(map(_passage_from_json, data["items"])))
        case "text_delta":
            yield TextDelta(data["text"])
        case "citation_added":
            yield CitationAdded(_citation_from_json(data["citation"]))
        case "text_retracted":
            yield TextRetracted(data["reason"])
        case "grounding":
            yield Grounding(_verdict_from_json(data))
        case "run_failed":
            yield RunFailed(data["detail"])
            raise UnavailableError(data["detail"])
        case "run_finished":
            seconds = data["timings_ms"]["total"] / 1000
            yield RunFinished(data["finish_reason"], data["confidence"], seconds)


def _report_from_json(data: Mapping[str, Any]) -> StageReport:
    return StageReport(
        stage=data["stage"],
        seconds=data["ms"] / 1000,
        error=data["error"],
        parent=data["parent"],
        started=data["began_ms"] / 1000,
        time_limit=inf if data["limit_ms"] is None else data["limit_ms"] / 1000,
        skipped=data["skipped"],
        figures=data["figures"],
    )


def _citation_from_json(data: Mapping[str, Any]) -> Citation:
    return Citation(
        n=data["n"],
        chunk_id=UUID(data["chunk_id"]),
        document_id=UUID(data["document_id"]),
        collection=data["collection"],
        title=data["title"],
        uri=data["url"],
        quote=data["quote"],
        start=data["start"],
        end=data["end"],
        spans=tuple(_span_from_json(span) for span in data["spans"]),
        claim=_span_from_json(data["claim"]),
        score=data["score"],
        page=data["page"],
        section=data["section"],
        updated_at=_parse_optional_time(data["updated_at"]),
        grade=data["verdict"],
    )


def _verdict_from_json(data: Mapping[str, Any]) -> Verdict:
    claims = tuple(
        Claim(
            start=claim["start"],
            end=claim["end"],
            grade=claim["verdict"],
            score=claim["score"],
            reason=claim["reason"],
        )
        for claim in data["claims"]
    )
    return Verdict(grade=data["verdict"], score=data["score"], claims=claims, method=data["method"])


def _hit_from_json(data: Mapping[str, Any]) -> Hit:
    chunk = Chunk(
        id=UUID(data["chunk_id"]),
        document_id=UUID(data["document_id"]),
        ordinal=0,
        text=data["text"],
        start=data["start"],
        end=data["end"],
        metadata={name: data[name] for name in ("page", "section") if data[name] is not None},
    )
    return Hit(chunk=chunk, origin=Origin(uri=data["url"], title=data["title"]), score=data["score"])


def _passage_from_json(data: Mapping[str, Any]) -> Passage:
    hit = replace(_hit_from_json(data), scores=data["scores"])
    hit = replace(hit, origin=replace(hit.origin, updated_at=_parse_optional_time(data["updated_at"])))
    chunks = tuple(replace(hit.chunk, id=UUID(id)) for id in data["chunk_ids"])
    return Passage(n=data["n"], hit=hit, text=data["text"], start=data["start"], chunks=chunks)


def _span_from_json(data: Mapping[str, int]) -> tuple[int, int]:
    return data["start"], data["end"]


def _parse_optional_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
