"""The events of an answer as `/v1/answer` streams them: their names, and their data."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, Self

from rag_core import events, types
from rag_core.wire.answer import Citation, Clarification, Source, Tokens, Verdict, describe_trust
from rag_core.wire.shape import Milliseconds, Shape
from rag_core.wire.stages import Stage, to_ms


class RunStarted(Shape):
    """`run_id` is the id of the answer."""

    run_id: str
    correlation_id: str
    profile: str
    pipeline_version: str
    question: str
    collection: str
    conversation_id: str

    @classmethod
    def describe(
        cls, run_id: str, query: types.Query, correlation_id: str, profile: str, pipeline_version: str
    ) -> Self:
        return cls(
            run_id=run_id,
            correlation_id=correlation_id,
            profile=profile,
            pipeline_version=pipeline_version,
            question=query.text,
            collection=query.collection,
            conversation_id=query.session_id,
        )


class Variant(Shape):
    name: types.VariantName
    text: str
    weight: float


class Understood(Shape):
    """What a question means in its conversation. `variants` holds the searched texts by name, with their weights."""

    standalone: str
    intent: str
    sub_questions: list[str]
    resolved: dict[str, str]
    variants: list[Variant]
    drift: float | None
    is_shift: bool
    method: Literal["none", "rules", "llm"]

    @classmethod
    def describe(cls, understanding: types.Understanding) -> Self:
        variants = [Variant.from_value(variant) for variant in understanding.variants]
        return cls.from_value(understanding, variants=variants)

    def to_understanding(self) -> types.Understanding:
        variants = tuple(variant.to_value(types.Variant) for variant in self.variants)
        return self.to_value(types.Understanding, variants=variants, sub_questions=tuple(self.sub_questions))


class Sources(Shape):
    items: list[Source]


class CitationAdded(Shape):
    citation: Citation


class RunFinished(Shape):
    finish_reason: types.Finish
    confidence: float | None
    coverage: float
    timings_ms: Milliseconds


class Text(Shape):
    """The data of events that consist of one text. Each has one of the members."""

    text: str = ""
    reason: str = ""
    detail: str = ""


def snake_case(class_name: str) -> str:
    """`TextDelta` becomes `text_delta`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


def event_name(event: events.Event) -> str:
    """The name of an event's class in snake case: `text_delta` for a `TextDelta`."""
    return _NAMES.get(type(event)) or snake_case(type(event).__name__)


def describe_event(event: events.Event, number: int, now: datetime) -> object:
    """The data of an event other than RunStarted. `number` counts citations from 1; other events ignore it.

    Events that consist of texts are their own data.
    """
    match event:
        case events.Understood(understanding):
            return Understood.describe(understanding)
        case events.Sources(passages):
            return Sources(items=[Source.describe(passage) for passage in passages])
        case events.ClarificationAsked(clarification):
            return Clarification.describe(clarification)
        case events.CitationAdded(citation):
            return CitationAdded(citation=Citation.describe(number, citation, now))
        case events.StageFinished(report):
            return Stage.describe(report)
        case events.Grounding(verdict):
            return Verdict.describe(verdict)
        case events.Usage():
            return Tokens.describe(event)
        case events.RunFinished(finish, confidence, coverage, seconds):
            timings = {"total": to_ms(seconds)}
            return RunFinished(finish_reason=finish, **describe_trust(confidence, coverage), timings_ms=timings)
        case _:
            return event


def decode_event(name: str, data: Mapping[str, Any]) -> events.Event | None:
    """The event with this name and data; None for an event that the fold of a reply does not need.

    Raises ResponseError if the data is invalid.
    """
    decode = _DECODERS.get(name)
    return decode(data) if decode else None


def _decode_start(data: Mapping[str, Any]) -> events.RunStarted:
    started = RunStarted.decode(data)
    query = types.Query(text=started.question, collection=started.collection, session_id=started.conversation_id)
    return events.RunStarted(query, started.run_id)


def _decode_sources(data: Mapping[str, Any]) -> events.Sources:
    return events.Sources(tuple(source.to_passage() for source in Sources.decode(data).items))


def _decode_end(data: Mapping[str, Any]) -> events.RunFinished:
    finished = RunFinished.decode(data)
    seconds = finished.timings_ms["total"] / 1000
    return events.RunFinished(finished.finish_reason, finished.confidence, finished.coverage, seconds)


_NAMES: Mapping[type[events.Event], str] = {events.Understood: "query", events.ClarificationAsked: "clarification"}
_DECODERS: Mapping[str, Callable[[Mapping[str, Any]], events.Event]] = {
    "run_started": _decode_start,
    "stage_finished": lambda data: events.StageFinished(Stage.decode(data).to_report()),
    "query": lambda data: events.Understood(Understood.decode(data).to_understanding()),
    "sources": _decode_sources,
    "clarification": lambda data: events.ClarificationAsked(Clarification.decode(data).to_clarification()),
    "text_delta": lambda data: events.TextDelta(Text.decode(data).text),
    "citation_added": lambda data: events.CitationAdded(CitationAdded.decode(data).citation.to_citation()),
    "text_retracted": lambda data: events.TextRetracted(Text.decode(data).reason),
    "grounding": lambda data: events.Grounding(Verdict.decode(data).to_verdict()),
    "run_failed": lambda data: events.RunFailed(Text.decode(data).detail),
    "run_finished": _decode_end,
}
