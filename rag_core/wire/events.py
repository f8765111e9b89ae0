"""The events of an answer as `/v1/answer` streams them: their names, and their data."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

from rag_core import events, types
from rag_core.wire.answer import Citation, Source, Tokens, Verdict, describe_trust
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
    return "query" if isinstance(event, events.Understood) else snake_case(type(event).__name__)


def describe_event(event: events.Event, number: int, now: datetime) -> object:
    """The data of an event other than RunStarted. `number` counts citations from 1; other events ignore it.

    Events that consist of texts are their own data.
    """
    match event:
        case events.Sources(passages):
            return Sources(items=[Source.describe(passage) for passage in passages])
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
    match name:
        case "run_started":
            started = RunStarted.decode(data)
            query = types.Query(text=started.question, collection=started.collection)
            return events.RunStarted(query, started.run_id)
        case "stage_finished":
            return events.StageFinished(Stage.decode(data).to_report())
        case "sources":
            return events.Sources(tuple(source.to_passage() for source in Sources.decode(data).items))
        case "text_delta":
            return events.TextDelta(Text.decode(data).text)
        case "citation_added":
            return events.CitationAdded(CitationAdded.decode(data).citation.to_citation())
        case "text_retracted":
            return events.TextRetracted(Text.decode(data).reason)
        case "grounding":
            return events.Grounding(Verdict.decode(data).to_verdict())
        case "run_failed":
            return events.RunFailed(Text.decode(data).detail)
        case "run_finished":
            finished = RunFinished.decode(data)
            seconds = finished.timings_ms["total"] / 1000
            return events.RunFinished(finished.finish_reason, finished.confidence, finished.coverage, seconds)
        case _:
            return None
