"""`/v1/answer`: a cited answer, complete or as a stream of events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request, Response

from rag_core.events import (
    CitationAdded,
    Event,
    RunFailed,
    RunFinished,
    RunStarted,
    StageFinished,
    TextRetracted,
    add_citation,
)
from rag_core.types import Citation, Query, Reply, StageReport
from rag_core.wire import citations_json, count_tokens, json_text, verdict_json
from serve.bodies.answer_events import event_json, event_name, usage_json
from serve.bodies.openapi import BODY_PROBLEMS, MODEL_PROBLEMS, success_response
from serve.bodies.queries import build_query
from serve.bodies.requests import Answer
from serve.bodies.responses import Answered
from serve.http.dependencies import CurrentCaller, CurrentVariants
from serve.http.event_stream import EventStream, RecordingAnswerer, format_frames, generation_error, stream_events
from serve.http.problems import problem_body
from serve.http.responses import json_response, server_timing, timings_ms
from serve.variants import AnswerVariant, check_profile

router = APIRouter()


@router.post("/v1/answer", responses=success_response(Answered, BODY_PROBLEMS, MODEL_PROBLEMS, events=True))
async def answer(body: Answer, caller: CurrentCaller, variants: CurrentVariants, request: Request) -> Response:
    """Answers a question, with citations. With `stream`, sends the events of the answer instead."""
    check_profile(body.profile, variants.services.settings)
    variant = variants.answer_variant(body.options)
    request.state.pipeline_version = variant.pipeline_version
    query = build_query(body, body.question, caller, body.conversation_id)
    if body.stream:
        return EventStream(format_frames(_stream_answer(variant, query, request)))
    reply = await variant.answerer.answer(query)
    return json_response(reply_json(reply, variant.pipeline_version), headers=server_timing(reply.stages))


def reply_json(reply: Reply, pipeline_version: str) -> dict[str, Any]:
    answer = reply.answer
    return {
        "id": _answer_id(),
        "object": "answer",
        "answer": answer.text,
        "citations": citations_json(answer, datetime.now(UTC)),
        "confidence": round(answer.confidence, 4),
        "finish_reason": answer.finish,
        "grounding": verdict_json(answer.verdict),
        "standalone_question": reply.standalone,
        "conversation_id": reply.query.session_id,
        "pipeline_version": pipeline_version,
        "degraded": list(reply.degraded),
        "timings_ms": timings_ms(reply),
        "usage": usage_json(*count_tokens(reply)),
    }


async def _stream_answer(
    variant: AnswerVariant, query: Query, request: Request
) -> AsyncGenerator[tuple[str, str] | None, None]:
    """Yields the events as pairs of name and data, and None for a keep-alive.

    After any failure the last event is `run_failed`, with a problem as its data. An answer that the model broke off
    ends with `run_finished` and then `run_failed`. Without `stream` it is a normal response with the `finish_reason`
    `broken`. A timeout is not traced to an unreachable store here.
    """
    correlation_id = request.state.correlation_id
    formatter = _EventFormatter(variant=variant, correlation_id=correlation_id)
    answerer = RecordingAnswerer(variant.answerer)
    failure: Exception | None = None
    try:
        async with aclosing(stream_events(answerer, query)) as events:
            async for event in events:
                if not isinstance(event, RunFailed):  # replaced by the problem below
                    yield None if event is None else formatter.format(event)
        failure = formatter.generation_error or answerer.error
    except Exception as error:  # noqa: BLE001 - a stream must end with an event, whatever fails
        failure = error
    if failure:
        yield "run_failed", json_text(problem_body(failure, request.url.path, correlation_id))


@dataclass(slots=True, kw_only=True)
class _EventFormatter:
    """A converter of the events of one answer to names and data.

    The number in a citation's id (`cit_01`) is its position in `citations`, from 1. The marker's number is
    `citation.n`. `generation_error` is the error that cut the answer short.
    """

    variant: AnswerVariant
    correlation_id: str
    citations: tuple[Citation, ...] = ()
    stages: list[StageReport] = field(default_factory=list)
    generation_error: Exception | None = None

    def format(self, event: Event) -> tuple[str, str]:
        """Converts an event to its name and data, and remembers what `run_failed` needs."""
        number = 0
        match event:
            case StageFinished(report):
                self.stages.append(report)
            case RunFinished(finish):
                self.generation_error = generation_error(finish, self.stages)
            case CitationAdded(citation):
                self.citations = add_citation(self.citations, citation)
                number = self.citations.index(citation) + 1  # a citation that is sent again keeps its number
            case TextRetracted():
                self.citations = ()
        data = event_json(event, number, datetime.now(UTC))
        if isinstance(event, RunStarted):
            run = {
                "run_id": _answer_id(),  # the stream's name for the id of the answer
                "correlation_id": self.correlation_id,
                "profile": self.variant.settings.profile,
                "pipeline_version": self.variant.pipeline_version,
            }
            data = {**run, **data}
        return event_name(event), json_text(data)


def _answer_id() -> str:
    return f"ans_{uuid4().hex}"
