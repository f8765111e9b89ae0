"""The shapes of an answer: `/v1/answer` and `rag ask --json`."""

from datetime import UTC, datetime
from typing import Literal, Self
from uuid import UUID, uuid4

from rag_core import events, types
from rag_core.wire.shape import Milliseconds, Numbers, Shape
from rag_core.wire.stages import Stage, describe_stages, sum_timings


class Span(Shape):
    """A half-open span in code points."""

    start: int
    end: int

    @property
    def pair(self) -> tuple[int, int]:
        return self.start, self.end


class Citation(Shape):
    """A citation. `start` and `end` are offsets in the document's text, `spans` and `claim` in the answer."""

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
        return cls(
            n=citation.n,
            id=f"cit_{number:02}",
            source_type="corpus",
            chunk_id=citation.chunk_id,
            document_id=citation.document_id,
            collection=citation.collection,
            title=citation.title,
            url=citation.uri,
            origin_url=citation.uri,
            page=citation.page,
            section=citation.section,
            start=citation.start,
            end=citation.end,
            quote=citation.quote,
            spans=spans[:-1],
            claim=spans[-1],
            score=round(citation.score, 4),
            verdict=citation.grade,
            updated_at=citation.updated_at,
            age_days=count_days(citation.updated_at, now),
        )

    def to_citation(self) -> types.Citation:
        return types.Citation(
            n=self.n,
            chunk_id=self.chunk_id,
            document_id=self.document_id,
            collection=self.collection,
            title=self.title,
            uri=self.url,
            quote=self.quote,
            start=self.start,
            end=self.end,
            spans=tuple(span.pair for span in self.spans),
            claim=self.claim.pair,
            score=self.score,
            page=self.page,
            section=self.section or "",
            updated_at=self.updated_at,
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
        claims = [
            Claim(
                start=claim.start,
                end=claim.end,
                verdict=claim.grade,
                score=round(claim.score, 4),
                reason=claim.reason,
            )
            for claim in verdict.claims
        ]
        return cls(verdict=verdict.grade, score=round(verdict.score, 4), method=verdict.method, claims=claims)

    def to_verdict(self) -> types.Verdict:
        claims = tuple(
            types.Claim(start=claim.start, end=claim.end, grade=claim.verdict, score=claim.score, reason=claim.reason)
            for claim in self.claims
        )
        return types.Verdict(grade=self.verdict, score=self.score, claims=claims, method=self.method)


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
        return cls(
            n=passage.n,
            chunk_id=hit.chunk.id,
            chunk_ids=[chunk.id for chunk in passage.chunks],
            document_id=hit.chunk.document_id,
            title=hit.origin.title,
            url=hit.origin.uri,
            page=hit.chunk.metadata.get("page"),
            section=hit.chunk.metadata.get("section"),
            source_type="corpus",
            updated_at=hit.origin.updated_at,
            start=passage.start,
            end=passage.end,
            score=round(hit.score, 6),
            scores=hit.scores,
            text=passage.text,
        )

    def to_passage(self) -> types.Passage:
        position = {"page": self.page, "section": self.section}
        first, *others = [
            types.Chunk(
                id=id,
                document_id=self.document_id,
                ordinal=0,
                text=self.text,
                start=self.start,
                end=self.end,
                metadata={name: value for name, value in position.items() if value is not None},
            )
            for id in (self.chunk_id, *self.chunk_ids)
        ]
        origin = types.Origin(uri=self.url, title=self.title, updated_at=self.updated_at)
        hit = types.Hit(chunk=first, origin=origin, score=self.score, scores=self.scores)
        return types.Passage(n=self.n, hit=hit, text=self.text, start=self.start, chunks=tuple(others))


class Tokens(Shape):
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    total_tokens: int

    @classmethod
    def describe(cls, usage: events.Usage) -> Self:
        return cls(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
        )


class Answered(Shape):
    id: str
    object: Literal["answer"]
    answer: str
    citations: list[Citation]
    confidence: float
    finish_reason: types.Finish
    grounding: Verdict
    standalone_question: str
    conversation_id: str
    pipeline_version: str
    degraded: list[str]
    timings_ms: Milliseconds
    usage: Tokens

    @classmethod
    def describe(cls, reply: types.Reply, pipeline_version: str, now: datetime) -> Self:
        answer = reply.answer
        return cls(
            id=create_answer_id(),
            object="answer",
            answer=answer.text,
            citations=describe_citations(answer, now),
            confidence=round(answer.confidence, 4),
            finish_reason=answer.finish,
            grounding=Verdict.describe(answer.verdict),
            standalone_question=reply.standalone,
            conversation_id=reply.query.session_id,
            pipeline_version=pipeline_version,
            degraded=list(reply.degraded),
            timings_ms=reply_timings(reply),
            usage=Tokens.describe(count_tokens(reply)),
        )


class Asked(Shape):
    """The output of `rag ask --json`; `passages` only with `--explain`."""

    answer: str
    citations: list[Citation]
    verdict: Verdict
    confidence: float
    finish: types.Finish
    standalone: str
    session_id: str
    stages: list[Stage]
    degraded: list[str]
    passages: list[Source] | None = None

    @classmethod
    def describe(cls, reply: types.Reply, now: datetime, explain: bool) -> Self:
        answer = reply.answer
        return cls(
            answer=answer.text,
            citations=describe_citations(answer, now),
            verdict=Verdict.describe(answer.verdict),
            confidence=round(answer.confidence, 4),
            finish=answer.finish,
            standalone=reply.standalone,
            session_id=reply.query.session_id,
            stages=describe_stages(reply.stages),
            degraded=list(reply.degraded),
            **({"passages": [Source.describe(passage) for passage in reply.passages]} if explain else {}),
        )


def describe_citations(answer: types.Answer, now: datetime) -> list[Citation]:
    return [Citation.describe(number, citation, now) for number, citation in enumerate(answer.citations, start=1)]


def create_answer_id() -> str:
    return f"ans_{uuid4().hex}"


def count_days(updated_at: datetime | None, now: datetime) -> int | None:
    """The age of a document in days; None if its date is unknown."""
    return None if updated_at is None else max(0, (now.astimezone(UTC) - updated_at).days)


def reply_timings(reply: types.Reply) -> Milliseconds:
    return sum_timings([report for report in reply.stages if not report.skipped], reply.seconds)


def count_tokens(reply: types.Reply) -> events.Usage:
    """The tokens of all completions, including those that were withheld."""
    names = ("prompt_tokens", "completion_tokens", "cached_tokens")
    return events.Usage(*(sum(int(report.figures.get(name, 0)) for report in reply.stages) for name in names))
