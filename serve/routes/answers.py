"""`/v1/answer`: a cited answer, whole or as its events."""

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
from rag_core.wire import citations_json, json_text, tokens, verdict_json
from serve.bodies.answer_events import event_json, event_name, usage_json
from serve.bodies.openapi import ASKS_MODELS, BODY, shows
from serve.bodies.queries import query
from serve.bodies.requests import Answer
from serve.bodies.responses import Answered
from serve.http.dependencies import Served, Who
from serve.http.event_stream import Answering, EventStream, broken_by, events, framed
from serve.http.problems import problem
from serve.http.responses import as_json, server_timing
from serve.variants import AnswerVariant, check_profile, variants

router = APIRouter()


@router.post("/v1/answer", responses=shows(Answered, BODY, ASKS_MODELS, events=True))
async def answer(asked: Answer, who: Who, graph: Served, request: Request) -> Response:
    """Each sentence with its source. With `stream` its events, as they come, under their names."""
    check_profile(asked.profile, graph.settings)
    chosen = variants(request.app).answer(asked.options)
    request.state.pipeline_version = chosen.pipeline_version
    question = query(asked, asked.question, who, asked.conversation_id)
    if asked.stream:
        place = {"instance": request.url.path, "correlation_id": request.state.correlation_id}
        return EventStream(framed(_Run(chosen=chosen, question=question, **place).frames()))
    reply = await chosen.answerer.answer(question)
    return as_json(reply_json(reply, chosen.pipeline_version), headers=server_timing(reply.stages))


def reply_json(reply: Reply, pipeline_version: str) -> dict[str, Any]:
    answered = reply.answer
    timings = {report.stage: round(1000 * report.seconds, 1) for report in reply.stages if not report.skipped}
    return {
        "id": _id(),
        "object": "answer",
        "answer": answered.text,
        "citations": citations_json(answered, datetime.now(UTC)),
        "confidence": round(answered.confidence, 4),
        "finish_reason": answered.finish,
        "grounding": verdict_json(answered.verdict),
        "standalone_question": reply.standalone,
        "conversation_id": reply.query.session_id,
        "pipeline_version": pipeline_version,
        "degraded": list(reply.degraded),
        "timings_ms": {**timings, "total": round(1000 * reply.seconds, 1)},
        "usage": usage_json(*tokens(reply)),
    }


@dataclass(slots=True, kw_only=True)
class _Run:
    """What all events of one answer share, and the citations that were told so far, which number the next."""

    chosen: AnswerVariant
    question: Query
    instance: str
    correlation_id: str
    told: tuple[Citation, ...] = ()
    stages: list[StageReport] = field(default_factory=list)

    async def frames(self) -> AsyncGenerator[tuple[str, str] | None, None]:
        """A failure is the last event, whatever failed: it is the problem that the answer would have been. Of one that
        broke amid its text it comes after what stands."""
        answering = Answering(self.chosen.answerer)
        failed: Exception | None = None
        try:
            async with aclosing(events(answering, self.question)) as telling:
                async for event in telling:
                    if not isinstance(event, RunFailed):
                        yield self._frame(event)
                    failed = failed or self._broken(event)
        except Exception as error:  # noqa: BLE001 - whatever it is, a stream must not end without a word
            failed = error
        if failed := failed or answering.failed:
            yield "run_failed", json_text(problem(failed, self.instance, self.correlation_id))

    def _frame(self, event: Event | None) -> tuple[str, str] | None:
        if event is None:
            return None
        body = event_json(event, self._number(event), datetime.now(UTC))
        return event_name(event), json_text({**self._about(event), **body})

    def _broken(self, event: Event | None) -> Exception | None:
        match event:
            case StageFinished(report):
                self.stages.append(report)
            case RunFinished(finish):
                return broken_by(finish, self.stages)
        return None

    def _about(self, event: Event) -> dict[str, str]:
        if not isinstance(event, RunStarted):
            return {}
        return {
            "run_id": _id(),
            "correlation_id": self.correlation_id,
            "profile": self.chosen.settings.profile,
            "pipeline_version": self.chosen.pipeline_version,
        }

    def _number(self, event: Event) -> int:
        """Of the citation: one that is told again keeps its own."""
        match event:
            case CitationAdded(citation):
                self.told = add_citation(self.told, citation)
                return self.told.index(citation) + 1
            case TextRetracted():
                self.told = ()
        return 0


def _id() -> str:
    return f"ans_{uuid4().hex}"
