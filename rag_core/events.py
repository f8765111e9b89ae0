"""The events that a pipeline emits while it makes a reply.

Every wire format is a translation of these events, and the reply is their fold.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from rag_core.types import (
    Answer,
    Citation,
    Clarification,
    Finish,
    Grade,
    Passage,
    Query,
    Reply,
    StageReport,
    Understanding,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class RunStarted:
    """`id` is that of a gateway's answer; empty without a gateway."""

    query: Query
    id: str = ""


@dataclass(frozen=True, slots=True)
class StageStarted:
    stage: str


@dataclass(frozen=True, slots=True)
class StageFinished:
    """The end of a stage. The reports of its parts are emitted before its own."""

    report: StageReport


@dataclass(frozen=True, slots=True)
class Understood:
    """What the question means in its conversation. It is emitted only if a history was interpreted."""

    understanding: Understanding


@dataclass(frozen=True, slots=True)
class Sources:
    """The passages that the answer may cite, emitted before its first word."""

    passages: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class ClarificationAsked:
    """A question to the user instead of an answer. The text that follows contains it with its options."""

    clarification: Clarification


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CitationAdded:
    """A citation, emitted with its marker. It replaces an earlier one of equal `n` and `claim`, with one span more."""

    citation: Citation


@dataclass(frozen=True, slots=True)
class TextRetracted:
    """All text and citations emitted so far are withdrawn."""

    reason: str


@dataclass(frozen=True, slots=True)
class Grounding:
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Degraded:
    component: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunFailed:
    error: str


@dataclass(frozen=True, slots=True)
class RunFinished:
    finish: Finish
    confidence: float | None
    coverage: float
    seconds: float


Event: TypeAlias = (
    RunStarted
    | StageStarted
    | StageFinished
    | Understood
    | Sources
    | ClarificationAsked
    | TextDelta
    | CitationAdded
    | TextRetracted
    | Grounding
    | Usage
    | Degraded
    | RunFailed
    | RunFinished
)
Listener: TypeAlias = Callable[[Event], Awaitable[None]]


async def ignore_event(_event: Event) -> None:
    """The listener of a caller that needs no events."""


def fold(events: Iterable[Event]) -> Reply:
    """Builds the reply that the events describe. Raises ValueError if the first is not RunStarted."""
    remaining = iter(events)
    match next(remaining, None):
        case RunStarted(query):
            reply = Reply(query=query, standalone=query.text, answer=Answer(text=""))
        case first:
            raise ValueError(f"events must begin with RunStarted, got {first}")
    texts: list[str] = []
    citations: dict[tuple[int, tuple[int, int]], Citation] = {}  # a citation that is sent again keeps its place
    for event in remaining:
        match event:
            case TextDelta(text):
                texts.append(text)
            case CitationAdded(citation):
                citations[citation.n, citation.claim] = citation
            case TextRetracted():
                texts.clear()
                citations.clear()
                reply = replace(reply, answer=Answer(text=""))
            case _:
                reply = _apply(reply, event)
    answer = replace(reply.answer, text="".join(texts), citations=tuple(citations.values()))
    return replace(reply, answer=grade_citations(answer))


def grade_citations(answer: Answer) -> Answer:
    """Copies to each citation the grade of the first judged claim that overlaps the citation's own claim."""
    citations = tuple(replace(citation, grade=_grade(citation, answer.verdict)) for citation in answer.citations)
    return replace(answer, citations=citations)


def _grade(citation: Citation, verdict: Verdict) -> Grade:
    start, end = citation.claim
    return next((claim.grade for claim in verdict.claims if claim.start < end and start < claim.end), citation.grade)


def add_citation(citations: Sequence[Citation], added: Citation) -> tuple[Citation, ...]:
    """Appends the citation, or puts it in the place of the one with equal `n` and `claim`."""
    for index, citation in enumerate(citations):
        if (citation.n, citation.claim) == (added.n, added.claim):
            return (*citations[:index], added, *citations[index + 1 :])
    return (*citations, added)


def _apply(reply: Reply, event: Event) -> Reply:
    """Applies an event that changes neither the text nor the citations."""
    answer = reply.answer
    match event:
        case Understood(understanding):
            return replace(reply, standalone=understanding.standalone, understanding=understanding)
        case Sources(passages):
            return replace(reply, passages=passages)
        case ClarificationAsked(clarification):
            return replace(reply, clarification=clarification)
        case StageFinished(report):
            return replace(reply, stages=(*reply.stages, report))
        case Grounding(verdict):
            return replace(reply, answer=replace(answer, verdict=verdict))
        case RunFinished(finish, confidence, coverage, seconds):
            ended = replace(answer, finish=finish, confidence=confidence, coverage=coverage)
            return replace(reply, answer=ended, seconds=seconds)
        case _:
            return reply
