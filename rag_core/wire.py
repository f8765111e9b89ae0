"""Conversion of hits and answers to the JSON that the Python API, the command line and the gateway share."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any
from uuid import uuid4

from pydantic_core import to_json

from rag_core.detection import DEFAULT_PROFILE
from rag_core.retrieval.explanation import STEPS_AFTER_LEGS, explain_hit, ranks_by_stage
from rag_core.types import Answer, Citation, Hit, Passage, Reply, StageReport, Verdict

MIN_WORD_CHARS = 3
_WORD = re.compile(r"\w+")


def json_bytes(value: object) -> bytes:
    """Writes times in RFC 3339, ids and paths as text. Takes a quarter of the time of `json`.

    Raises ValueError for an unpaired surrogate.
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
    claim_start, claim_end = citation.claim
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
        "spans": [{"start": start, "end": end} for start, end in citation.spans],
        "claim": {"start": claim_start, "end": claim_end},
        "score": round(citation.score, 4),
        "verdict": citation.grade,
        "updated_at": citation.updated_at,
        "age_days": age_days(citation.updated_at, now),
    }


def retrieval_json(
    question: str, hits: Sequence[Hit], stages: Sequence[StageReport], profile: str, seconds: float, explain: bool
) -> dict[str, Any]:
    """A retrieval without its pipeline version; `explain` adds the ranks of each hit and the stages."""
    timings = {report.stage: round(report.seconds * 1000, 1) for report in stages}
    results = [_result_json(rank, hit, question) for rank, hit in enumerate(hits, start=1)]
    if explain:
        ranks = ranks_by_stage(stages)
        results = [{**row, "explain": explain_hit(hit, ranks)} for row, hit in zip(results, hits, strict=True)]
    return {
        "id": f"ret_{uuid4().hex}",
        "object": "retrieval",
        "query": question,
        "standalone_query": question,
        "results": results,
        "profile": {"name": profile, "selected_by": "default" if profile == DEFAULT_PROFILE else "explicit"},
        "partial": any(report.error for report in stages),
        "degraded": [report.stage for report in stages if report.error],
        "timings_ms": {**timings, "total": round(seconds * 1000, 1)},
        **({"stages": stage_rows(stages)} if explain else {}),
        "next_cursor": None,
    }


def count_tokens(reply: Reply) -> tuple[int, int, int]:
    """Prompt tokens, completion tokens, and the part of the prompt tokens that was cached.

    Completions that were withheld count too.
    """
    names = ("prompt_tokens", "completion_tokens", "cached_tokens")
    prompt, completion, cached = (sum(int(report.figures.get(name, 0)) for report in reply.stages) for name in names)
    return prompt, completion, cached


def stage_rows(stages: Sequence[StageReport]) -> list[dict[str, Any]]:
    return [stage_row(report) for report in sort_stages(stages)]


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


def sort_stages(stages: Sequence[StageReport]) -> list[StageReport]:
    """Sorts by start; of stages that start together the longest is first, because it encloses the others."""
    return sorted(stages, key=lambda report: (report.started, -report.seconds))


def find_highlights(question: str, text: str) -> list[tuple[int, int]]:
    """The spans of the words in the text that begin with a word of the question: `key` also finds `keys`."""
    words = {word for word in _WORD.findall(_lower_same_length(question)) if len(word) >= MIN_WORD_CHARS}
    lower_text = _lower_same_length(text)
    return sorted({span for word in words for span in _find_words(word, lower_text)})


def _find_words(prefix: str, text: str) -> Iterator[tuple[int, int]]:
    """Yields the spans of the words that begin with the prefix. Reads each word once, even if it repeats the prefix."""
    start = text.find(prefix)
    while start >= 0 and (match := _WORD.match(text, start)):
        if not start or not _WORD.match(text[start - 1]):
            yield match.span()
        start = text.find(prefix, match.end())


def _lower_same_length(text: str) -> str:
    """Converts to lower case and keeps the length: the only letter that would become two is replaced first."""
    return text.replace("\u0130", "i").lower()


def _result_json(rank: int, hit: Hit, question: str) -> dict[str, Any]:
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
        "retrievers": [name for name in hit.scores if name not in STEPS_AFTER_LEGS],
        "highlights": find_highlights(question, chunk.text),
        "metadata": dict(origin.metadata),
    }
