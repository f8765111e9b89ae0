"""The server-sent events of `/v1/answer`: names and data."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias, assert_never

from rag_core.events import (
    CitationAdded,
    Degraded,
    Event,
    Grounding,
    RunFailed,
    RunFinished,
    RunStarted,
    Sources,
    StageFinished,
    StageStarted,
    TextDelta,
    TextRetracted,
    Understood,
    Usage,
)
from rag_core.wire import citation_json, source_json, stage_row, verdict_json
from serve.http.responses import public_stages, snake_case
from serve.public_errors import public_message

RunEvent: TypeAlias = RunStarted | Understood | StageStarted | StageFinished | Degraded | RunFailed | RunFinished

EXCEPTIONAL_NAMES: Mapping[type, str] = {Understood: "query"}


def event_name(event: Event) -> str:
    """The name of an event's class in snake case: `text_delta` for a `TextDelta`."""
    return EXCEPTIONAL_NAMES.get(type(event)) or snake_case(type(event).__name__)


def event_json(event: Event, number: int, now: datetime) -> dict[str, Any]:
    """The data of an event. `number` counts citations from 1; other events ignore it."""
    match event:
        case TextDelta(text):
            return {"text": text}
        case CitationAdded(citation):
            return {"citation": citation_json(number, citation, now)}
        case TextRetracted(reason):
            return {"reason": reason}
        case Sources(passages):
            return {"items": [source_json(passage) for passage in passages]}
        case Grounding(verdict):
            return verdict_json(verdict)
        case Usage(prompt_tokens, completion_tokens, cached_tokens):
            return usage_json(prompt_tokens, completion_tokens, cached_tokens)
        case _:
            return _run_json(event)


def _run_json(event: RunEvent) -> dict[str, Any]:
    match event:
        case RunStarted(query):
            return {"question": query.text, "collection": query.collection, "conversation_id": query.session_id}
        case Understood(standalone):
            return {"standalone": standalone}
        case StageStarted(stage):
            return {"stage": stage}
        case StageFinished(report):
            return stage_row(*public_stages([report]))
        case Degraded(component, reason):
            return {"component": component, "reason": public_message(reason)}
        case RunFailed(error):
            return {"detail": public_message(error)}
        case RunFinished(finish, confidence, seconds):
            ms = round(1000 * seconds, 1)
            return {"finish_reason": finish, "confidence": round(confidence, 4), "timings_ms": {"total": ms}}
        case _:
            assert_never(event)


def usage_json(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "cached_tokens": cached_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
