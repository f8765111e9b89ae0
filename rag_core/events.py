"""What a reply tells while it is made. Every wire format is a translation of these, and the reply is their fold."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from rag_core.types import Answer, Citation, Finish, Grade, Passage, Query, Reply, StageReport, Verdict


@dataclass(frozen=True, slots=True)
class RunStarted:
    query: Query


@dataclass(frozen=True, slots=True)
class StageStarted:
    stage: str


@dataclass(frozen=True, slots=True)
class StageFinished:
    """Parts of a stage are told with it, before it."""

    report: StageReport


@dataclass(frozen=True, slots=True)
class Understood:
    """The question as it is searched."""

    standalone: str


@dataclass(frozen=True, slots=True)
class Sources:
    """What the answer may cite; before its first word."""

    passages: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CitationAdded:
    """Told with its marker. One that was told before with equal `n` and `claim` is replaced: it has a span more."""

    citation: Citation


@dataclass(frozen=True, slots=True)
class TextRetracted:
    """All text and citations so far are void."""

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
    confidence: float
    seconds: float


Event: TypeAlias = (
    RunStarted
    | StageStarted
    | StageFinished
    | Understood
    | Sources
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


async def nobody(_event: Event) -> None:
    """Listens to nothing."""


def fold(events: Iterable[Event]) -> Reply:
    """The reply that the events tell of. ValueError if they do not begin with the run's start."""
    told = iter(events)
    match next(told, None):
        case RunStarted(query):
            reply = Reply(query=query, standalone=query.text, answer=Answer(text=""))
        case first:
            raise ValueError(f"events must begin with RunStarted, got {first}")
    for event in told:
        reply = _with(reply, event)
    return replace(reply, answer=graded(reply.answer))


def graded(answer: Answer) -> Answer:
    """Each citation with the grade of the first claim that its own overlaps."""
    citations = tuple(replace(each, grade=_grade(each, answer.verdict)) for each in answer.citations)
    return replace(answer, citations=citations)


def _grade(citation: Citation, verdict: Verdict) -> Grade:
    start, end = citation.claim
    return next((claim.grade for claim in verdict.claims if claim.start < end and start < claim.end), citation.grade)


def with_citation(citations: Sequence[Citation], added: Citation) -> tuple[Citation, ...]:
    same = [place for place, each in enumerate(citations) if (each.n, each.claim) == (added.n, added.claim)]
    if not same:
        return (*citations, added)
    return (*citations[: same[0]], added, *citations[same[0] + 1 :])


def _with(reply: Reply, event: Event) -> Reply:
    answer = reply.answer
    match event:
        case Understood(standalone):
            return replace(reply, standalone=standalone)
        case Sources(passages):
            return replace(reply, passages=passages)
        case StageFinished(report):
            return replace(reply, stages=(*reply.stages, report))
        case TextDelta(text):
            return replace(reply, answer=replace(answer, text=answer.text + text))
        case CitationAdded(citation):
            return replace(reply, answer=replace(answer, citations=with_citation(answer.citations, citation)))
        case TextRetracted():
            return replace(reply, answer=Answer(text=""))
        case Grounding(verdict):
            return replace(reply, answer=replace(answer, verdict=verdict))
        case RunFinished(finish, confidence, seconds):
            ended = replace(answer, finish=finish, confidence=confidence)
            return replace(reply, answer=ended, seconds=seconds)
        case _:
            return reply
