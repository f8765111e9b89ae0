"""`/v1/answer`: a cited answer, complete or as a stream of events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from fastapi import APIRouter, Depends, Request, Response

from rag_core.events import (
    CitationAdded,
    Degraded,
    Event,
    RunFailed,
    RunFinished,
    RunStarted,
    StageFinished,
    TextRetracted,
)
from rag_core.protocols import Answerer
from rag_core.types import Query, StageReport
from rag_core.wire import events as wire_events
from rag_core.wire.answer import Answered, create_answer_id
from rag_core.wire.shape import json_text
from serve.bodies.openapi import BODY_PROBLEMS, MODEL_PROBLEMS, RATE_PROBLEMS, success_response
from serve.bodies.queries import build_query
from serve.bodies.requests import Answer
from serve.http.admission import take_answer_turn
from serve.http.dependencies import Chatter, CurrentProfiles
from serve.http.event_stream import EventStream, RecordingAnswerer, format_frames, generation_error, stream_events
from serve.http.policy import check_guard
from serve.http.problems import describe_problem
from serve.http.rate_limits import MeteredAnswerer, limit_answers
from serve.http.request_headers import IdempotencyKey
from serve.http.responses import json_response, public_stages, server_timing
from serve.public_errors import public_message
from serve.variants import AnswerVariant

router = APIRouter()


@router.post(
    "/v1/answer",
    responses=success_response(Answered, BODY_PROBLEMS, MODEL_PROBLEMS, RATE_PROBLEMS, events=True),
    dependencies=[Depends(limit_answers), Depends(take_answer_turn)],
)
async def answer(
    body: Answer, caller: Chatter, profiles: CurrentProfiles, request: Request, key: IdempotencyKey
) -> Response:
    """Answers a question, with citations. With `stream`, sends the events of the answer instead.

    A conversation has each answer once: a request that is sent again with the same `Idempotency-Key` is answered again,
    under the same id and without the messages of the first time, and only the first answer is stored.
    """
    groups = sorted(caller.groups)
    id = create_answer_id(*([caller.tenant, caller.user, *groups, key, body.model_dump_json()] if key else []))
    query = build_query(body, body.question, caller, body.conversation_id, id)
    variants, exposure = await profiles.assign(body.profile, query)
    replaced = profiles.own_settings.guard.mode if body.profile else "off"
    check_guard(caller, body.guard, variants.services.settings.guard.mode, replaced)
    variant = variants.answer_variant(body.options)
    request.state.components = variant.components
    answerer = MeteredAnswerer(variant.recorded_answerer(id, exposure), profiles.own.services, caller)
    if body.stream:
        return EventStream(format_frames(_stream_answer(id, variant, answerer, query, request)))
    reply = await answerer.answer(query)
    public_reply = replace(reply, stages=tuple(public_stages(reply.stages)))
    answered = Answered.describe(id, public_reply, variant.pipeline_version, datetime.now(UTC))
    return json_response(answered, headers=server_timing(reply.stages))


async def _stream_answer(
    id: str, variant: AnswerVariant, answerer: Answerer, query: Query, request: Request
) -> AsyncGenerator[tuple[str, str] | None, None]:
    """Yields the events as pairs of name and data, and None for a keep-alive.

    After any failure the last event is `run_failed`, with a problem as its data. An answer that the model broke off
    ends with `run_finished` and then `run_failed`. Without `stream` it is a normal response with the `finish_reason`
    `broken`. A timeout is not traced to an unreachable store here.
    """
    correlation_id = request.state.correlation_id
    formatter = _EventFormatter(id=id, variant=variant, correlation_id=correlation_id)
    recording = RecordingAnswerer(answerer)
    failure: Exception | None = None
    try:
        async with aclosing(stream_events(recording, query)) as events:
            async for event in events:
                if not isinstance(event, RunFailed):  # replaced by the problem below
                    yield None if event is None else formatter.format(event)
        failure = formatter.generation_error or recording.error
    except Exception as error:  # noqa: BLE001 - a stream must end with an event, whatever fails
        failure = error
    if failure:
        yield "run_failed", json_text(describe_problem(failure, request.url.path, correlation_id))


@dataclass(slots=True, kw_only=True)
class _EventFormatter:
    """A converter of the events of one answer to names and data.

    The number in a citation's id (`cit_01`) is its place among the answer's citations, from 1. The marker's number is
    `citation.n`. `numbers` has them by marker number and claim. `generation_error` is the error that cut the answer
    short.
    """

    id: str
    variant: AnswerVariant
    correlation_id: str
    numbers: dict[tuple[int, tuple[int, int]], int] = field(default_factory=dict)
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
                # a citation that is sent again keeps its number
                number = self.numbers.setdefault((citation.n, citation.claim), len(self.numbers) + 1)
            case TextRetracted():
                self.numbers.clear()
        return wire_events.event_name(event), json_text(self._describe(hide_foreign_errors(event), number))

    def _describe(self, event: Event, number: int) -> object:
        if isinstance(event, RunStarted):
            variant = self.variant
            return wire_events.RunStarted.describe(
                self.id, event.query, self.correlation_id, variant.settings.profile, variant.pipeline_version
            )
        return wire_events.describe_event(event, number, datetime.now(UTC))


def hide_foreign_errors(event: Event) -> Event:
    """The event with error messages that clients may read."""
    match event:
        case StageFinished(report):
            return StageFinished(*public_stages([report]))
        case Degraded(component, reason):
            return Degraded(component, public_message(reason))
        case _:
            return event
