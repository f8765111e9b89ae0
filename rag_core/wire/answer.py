"""The shapes of an answer: `/v1/answer` and `rag ask --json`."""

from datetime import UTC, datetime
from typing import Any, Literal, Self
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

from pydantic import Field

from rag_core import events, types
from rag_core.wire.retrieval import chunk_metadata, describe_place
from rag_core.wire.shape import Milliseconds, Numbers, Shape, json_text
from rag_core.wire.stages import Stage, describe_stages, sum_timings


class Span(Shape):
    """A half-open span in code points."""

    start: int
    end: int

    @property
    def pair(self) -> tuple[int, int]:
        return self.start, self.end


class Citation(Shape):
    """A citation. `start` and `end` are offsets in the document's text, `spans` and `claim` in the answer.

    `url` is the gateway's page of the cited chunk, `origin_url` the address of the document.
    """

    n: int
    id: str
    source_type: Literal["corpus"]
    chunk_id: UUID
    document_id: UUID
    collection: str
    title: str
    url: str
    origin_url: str
    page: int | None
    section: str | None
    start: int
    end: int
    quote: str
    spans: list[Span]
    claim: Span
    score: float
    verdict: types.Grade
    updated_at: datetime | None
    age_days: int | None

    @classmethod
    def describe(cls, number: int, citation: types.Citation, now: datetime) -> Self:
        """`number` counts the citations of the answer, from 1."""
        spans = [Span(start=start, end=end) for start, end in (*citation.spans, citation.claim)]
        return cls.from_value(
            citation,
            id=f"cit_{number:02}",
            source_type="corpus",
            url=f"/v1/sources/{citation.chunk_id}",
            origin_url=citation.uri,
            spans=spans[:-1],
            claim=spans[-1],
            score=round(citation.score, 4),
            verdict=citation.grade,
            age_days=count_days(citation.updated_at, now),
        )

    def to_citation(self) -> types.Citation:
        return self.to_value(
            types.Citation,
            uri=self.origin_url,
            spans=tuple(span.pair for span in self.spans),
            claim=self.claim.pair,
            section=self.section or "",
            grade=self.verdict,
        )


class Claim(Span):
    verdict: types.Grade
    score: float
    reason: str


class Verdict(Shape):
    verdict: types.Grade
    score: float
    method: str
    claims: list[Claim]

    @classmethod
    def describe(cls, verdict: types.Verdict) -> Self:
        claims = [Claim.from_value(claim, verdict=claim.grade, score=round(claim.score, 4)) for claim in verdict.claims]
        return cls(verdict=verdict.grade, score=round(verdict.score, 4), method=verdict.method, claims=claims)

    def to_verdict(self) -> types.Verdict:
        claims = tuple(claim.to_value(types.Claim, grade=claim.verdict) for claim in self.claims)
        return self.to_value(types.Verdict, grade=self.verdict, claims=claims)


class Source(Shape):
    """A passage that an answer is written from."""

    n: int
    chunk_id: UUID
    chunk_ids: list[UUID]
    document_id: UUID
    title: str
    url: str
    page: int | None
    section: str | None
    source_type: Literal["corpus"]
    updated_at: datetime | None
    start: int
    end: int
    score: float
    scores: Numbers
    text: str

    @classmethod
    def describe(cls, passage: types.Passage) -> Self:
        hit = passage.hit
        return cls.from_value(
            passage,
            **describe_place(hit),
            chunk_ids=[chunk.id for chunk in passage.chunks],
            source_type="corpus",
            updated_at=hit.origin.updated_at,
            scores=hit.scores,
        )

    def to_passage(self) -> types.Passage:
        first, *chunks = [
            self.to_value(types.Chunk, id=id, ordinal=0, metadata=chunk_metadata(self))
            for id in (self.chunk_id, *self.chunk_ids)
        ]
        origin = types.Origin(uri=self.url, title=self.title, updated_at=self.updated_at)
        hit = types.Hit(chunk=first, origin=origin, score=self.score, scores=self.scores)
        return self.to_value(types.Passage, hit=hit, chunks=tuple(chunks))


class Clarification(Shape):
    """A question to the user, and the answers to choose from."""

    question: str
    options: list[str]

    @classmethod
    def describe(cls, clarification: types.Clarification) -> Self:
        return cls(question=clarification.question, options=list(clarification.options))

    def to_clarification(self) -> types.Clarification:
        return types.Clarification(question=self.question, options=tuple(self.options))


class Tokens(Shape):
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    total_tokens: int

    @classmethod
    def describe(cls, usage: events.Usage) -> Self:
        return cls.from_value(usage, total_tokens=usage.prompt_tokens + usage.completion_tokens)


class Answered(Shape):
    id: str
    object: Literal["answer"]
    answer: str
    citations: list[Citation]
    confidence: float | None = Field(description="the calibrated probability that the answer is right")
    coverage: float = Field(description="the share of the sentences that carry a citation")
    finish_reason: types.Finish
    clarification: Clarification | None = Field(description="what the answer asks back; null if it answers")
    grounding: Verdict
    standalone_question: str
    conversation_id: str
    pipeline_version: str
    degraded: list[str]
    degraded_reasons: dict[str, str] = Field(description="why each stage in `degraded` failed")
    timings_ms: Milliseconds
    usage: Tokens

    @classmethod
    def describe(cls, id: str, reply: types.Reply, pipeline_version: str, now: datetime) -> Self:
        answer = reply.answer
        return cls(
            id=id,
            object="answer",
            answer=answer.text,
            finish_reason=answer.finish,
            standalone_question=reply.standalone,
            usage=Tokens.describe(count_tokens(reply)),
            **describe_reply(reply, pipeline_version, now),
        )


class Asked(Shape):
    """The output of `rag ask --json`; `passages` only with `--explain`, `id` only with `--server`."""

    answer: str
    citations: list[Citation]
    verdict: Verdict
    confidence: float | None
    coverage: float
    finish: types.Finish
    clarification: Clarification | None
    standalone: str
    session_id: str
    stages: list[Stage]
    degraded: list[str]
    degraded_reasons: dict[str, str]
    passages: list[Source] | None = None
    id: str | None = None

    @classmethod
    def describe(cls, reply: types.Reply, now: datetime, explain: bool, id: str) -> Self:
        """An empty `id` is left out."""
        answer = reply.answer
        return cls(
            answer=answer.text,
            citations=describe_citations(answer, now),
            verdict=Verdict.describe(answer.verdict),
            **describe_trust(answer.confidence, answer.coverage),
            finish=answer.finish,
            clarification=describe_clarification(reply),
            standalone=reply.standalone,
            session_id=reply.query.session_id,
            stages=describe_stages(reply.stages),
            degraded=list(reply.degraded),
            degraded_reasons=reply.degraded_reasons,
            **({"passages": [Source.describe(passage) for passage in reply.passages]} if explain else {}),
            **({"id": id} if id else {}),
        )


def describe_reply(reply: types.Reply, pipeline_version: str, now: datetime) -> dict[str, Any]:
    """The members that answers and chat completions have in common."""
    timed = [report for report in reply.stages if not report.skipped]
    return {
        "citations": describe_citations(reply.answer, now),
        **describe_trust(reply.answer.confidence, reply.answer.coverage),
        "grounding": Verdict.describe(reply.answer.verdict),
        "clarification": describe_clarification(reply),
        "conversation_id": reply.query.session_id,
        "pipeline_version": pipeline_version,
        "degraded": list(reply.degraded),
        "degraded_reasons": reply.degraded_reasons,
        "timings_ms": sum_timings(timed, reply.seconds),
    }


def describe_clarification(reply: types.Reply) -> Clarification | None:
    return Clarification.describe(reply.clarification) if reply.clarification else None


def describe_trust(confidence: float | None, coverage: float) -> dict[str, float | None]:
    return {"confidence": None if confidence is None else round(confidence, 4), "coverage": round(coverage, 4)}


def describe_citations(answer: types.Answer, now: datetime) -> list[Citation]:
    return [Citation.describe(number, citation, now) for number, citation in enumerate(answer.citations, start=1)]


def create_answer_id(*parts: str) -> str:
    """A new id, or if there are parts, always the same id for the same parts."""
    return f"ans_{(uuid5(NAMESPACE_URL, json_text(parts)) if parts else uuid4()).hex}"


def count_days(updated_at: datetime | None, now: datetime) -> int | None:
    """The age of a document in days; None if its date is unknown."""
    return None if updated_at is None else max(0, (now.astimezone(UTC) - updated_at).days)


def count_tokens(reply: types.Reply) -> events.Usage:
    """The tokens of all completions, including those that were withheld."""
    names = ("prompt_tokens", "completion_tokens", "cached_tokens")
    return events.Usage(*(sum(int(report.figures.get(name, 0)) for report in reply.stages) for name in names))
