"""Answers as the JSON that every door gives."""

from datetime import UTC, datetime
from typing import Any

from rag_core.types import Answer, Citation, Verdict


def citations_json(answer: Answer, now: datetime) -> list[dict[str, Any]]:
    return [_citation(number, citation, now) for number, citation in enumerate(answer.citations, start=1)]


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    claims = [
        {
            "start": claim.start,
            "end": claim.end,
            "verdict": claim.grade,
            "score": round(claim.score, 4),
            "reason": claim.reason,
        }
        for claim in verdict.claims
    ]
    return {"verdict": verdict.grade, "score": round(verdict.score, 4), "method": verdict.method, "claims": claims}


def age_days(updated_at: datetime | None, now: datetime) -> int | None:
    return None if updated_at is None else max(0, (now.astimezone(UTC) - updated_at).days)


def _citation(number: int, citation: Citation, now: datetime) -> dict[str, Any]:
    return {
        "n": citation.n,
        "id": f"cit_{number:02}",
        "source_type": "corpus",
        "chunk_id": citation.chunk_id,
        "document_id": citation.document_id,
        "collection": citation.collection,
        "title": citation.title,
        "url": citation.uri,
        "origin_url": citation.uri,
        "page": citation.page,
        "section": citation.section,
        "start": citation.start,
        "end": citation.end,
        "quote": citation.quote,
        "spans": [_span(*span) for span in citation.spans],
        "claim": _span(*citation.claim),
        "score": round(citation.score, 4),
        "verdict": citation.grade,
        "updated_at": citation.updated_at,
        "age_days": age_days(citation.updated_at, now),
    }


def _span(start: int, end: int) -> dict[str, int]:
    return {"start": start, "end": end}
