"""Hits and answers as the JSON that every door gives."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any
from uuid import uuid4

from pydantic_core import to_json

from rag_core.detection import DEFAULT_PROFILE
from rag_core.retrieval.explanation import LAST, ranks, way
from rag_core.types import Answer, Citation, Hit, Passage, Reply, StageReport, Verdict

SHORTEST_WORD = 3
_WORD = re.compile(r"\w+")


def json_bytes(value: object) -> bytes:
    """Times as RFC 3339 has them, ids and paths as text. In a quarter of the time that `json` takes.

    ValueError for half a surrogate pair.
    """
    return to_json(value)


def json_text(value: object) -> str:
    return json_bytes(value).decode()


def citations_json(answer: Answer, now: datetime) -> list[dict[str, Any]]:
    return [citation_json(number, citation, now) for number, citation in enumerate(answer.citations, start=1)]


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


def source_json(passage: Passage) -> dict[str, Any]:
    hit = passage.hit
    return {
        "n": passage.n,
        "chunk_id": hit.chunk.id,
        "chunk_ids": [chunk.id for chunk in passage.chunks],
        "document_id": hit.chunk.document_id,
        "title": hit.origin.title,
        "url": hit.origin.uri,
        "page": hit.chunk.metadata.get("page"),
        "section": hit.chunk.metadata.get("section"),
        "source_type": "corpus",
        "updated_at": hit.origin.updated_at,
        "start": passage.start,
        "end": passage.end,
        "score": round(hit.score, 6),
        "scores": hit.scores,
        "text": passage.text,
    }


def citation_json(number: int, citation: Citation, now: datetime) -> dict[str, Any]:
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


def retrieval_json(
    question: str, hits: Sequence[Hit], stages: Sequence[StageReport], profile: str, seconds: float, explain: bool
) -> dict[str, Any]:
    """All but the version of the pipeline."""
    timings = {report.stage: round(report.seconds * 1000, 1) for report in stages}
    ranked = ranks(stages)
    explained = [(hit, {"explain": way(hit, ranked)} if explain else {}) for hit in hits]
    return {
        "id": f"ret_{uuid4().hex}",
        "object": "retrieval",
        "query": question,
        "standalone_query": question,
        "results": [{**_result(rank, hit, question), **each} for rank, (hit, each) in enumerate(explained, start=1)],
        "profile": {"name": profile, "selected_by": _selected_by(profile)},
        "partial": any(report.error for report in stages),
        "degraded": [report.stage for report in stages if report.error],
        "timings_ms": {**timings, "total": round(seconds * 1000, 1)},
        **({"stages": stage_rows(stages)} if explain else {}),
        "next_cursor": None,
    }


def _selected_by(profile: str) -> str:
    return "default" if profile == DEFAULT_PROFILE else "explicit"


def tokens(reply: Reply) -> tuple[int, int, int]:
    """Of the prompts, of all that was written, also what was not shown, and of the prompts those that were cached."""
    names = ("prompt_tokens", "completion_tokens", "cached_tokens")
    prompt, completion, cached = (sum(int(report.figures.get(name, 0)) for report in reply.stages) for name in names)
    return prompt, completion, cached


def stage_rows(stages: Sequence[StageReport]) -> list[dict[str, Any]]:
    return [stage_row(report) for report in in_order(stages)]


def stage_row(report: StageReport) -> dict[str, Any]:
    return {
        "stage": report.stage,
        "parent": report.parent,
        "began_ms": round(report.started * 1000, 1),
        "ms": round(report.seconds * 1000, 1),
        "limit_ms": round(report.time_limit * 1000, 1) if isfinite(report.time_limit) else None,
        "error": report.error,
        "skipped": report.skipped,
        "figures": report.figures,
        "ranked": len(report.ranking),
    }


def in_order(stages: Sequence[StageReport]) -> list[StageReport]:
    return sorted(stages, key=lambda report: (report.started, -report.seconds))


def highlights(question: str, text: str) -> list[tuple[int, int]]:
    """Where words of the text begin like a word of the question: `key` also finds `keys`."""
    words, lowered = {word for word in _WORD.findall(_lower(question)) if len(word) >= SHORTEST_WORD}, _lower(text)
    return sorted({span for word in words for span in _beginning(word, lowered)})


def _beginning(word: str, text: str) -> Iterator[tuple[int, int]]:
    """Where the words stand that begin with it, each read once however often it holds it."""
    at = text.find(word)
    while at >= 0 and (rest := _WORD.match(text, at)):
        if not at or not _WORD.match(text[at - 1]):
            yield rest.span()
        at = text.find(word, rest.end())


def _lower(text: str) -> str:
    """As long as the text: the one letter that becomes two is replaced before."""
    return text.replace("\u0130", "i").lower()


def _result(rank: int, hit: Hit, question: str) -> dict[str, Any]:
    chunk, origin = hit.chunk, hit.origin
    return {
        "rank": rank,
        "chunk_id": chunk.id,
        "document_id": chunk.document_id,
        "text": chunk.text,
        "title": origin.title,
        "url": origin.uri,
        "page": chunk.metadata.get("page"),
        "section": chunk.metadata.get("section"),
        "start": chunk.start,
        "end": chunk.end,
        "score": round(hit.score, 6),
        "retrievers": [name for name in hit.scores if name not in LAST],
        "highlights": highlights(question, chunk.text),
        "metadata": dict(origin.metadata),
    }
