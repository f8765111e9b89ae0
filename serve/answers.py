"""`/v1/answer`: a cited answer, whole or as its events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from rag_core.events import CitationAdded
from rag_core.types import Query, Reply
from rag_core.wire import citations_json, json_text, tokens, verdict_json
from serve.answer_events import event_json, event_name, usage_json
from serve.graph import Graph
from serve.requests import Served, Who, query
from serve.responses import as_json
from serve.schemas import Answer
from serve.stream import events, framed

router = APIRouter()

STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@router.post("/v1/answer")
async def answer(asked: Answer, who: Who, graph: Served) -> Response:
    """Each sentence with its source. With `stream` its events, as they come, under their names."""
    question = query(asked, asked.question, who, asked.conversation_id)
    if asked.stream:
        frames = framed(_frames(graph, question))
        return StreamingResponse(frames, media_type="text/event-stream", headers=STREAM_HEADERS)
    reply = await graph.answerer.answer(question)
    return as_json(reply_json(reply, graph))


def reply_json(reply: Reply, graph: Graph) -> dict[str, Any]:
    answered = reply.answer
    timings = {report.stage: round(1000 * report.seconds, 1) for report in reply.stages if not report.skipped}
    return {
        "id": f"ans_{uuid4().hex}",
        "object": "answer",
        "answer": answered.text,
        "citations": citations_json(answered, datetime.now(UTC)),
        "confidence": round(answered.confidence, 4),
        "finish_reason": answered.finish,
        "grounding": verdict_json(answered.verdict),
        "standalone_question": reply.standalone,
        "conversation_id": reply.query.session_id,
        "pipeline_version": graph.settings.pipeline_version,
        "degraded": list(reply.degraded),
        "timings_ms": {**timings, "total": round(1000 * reply.seconds, 1)},
        "usage": usage_json(*tokens(reply)),
    }


async def _frames(graph: Graph, question: Query) -> AsyncGenerator[tuple[str, str] | None, None]:
    cited = 0
    async with aclosing(events(graph.answerer, question)) as told:
        async for event in told:
            cited += isinstance(event, CitationAdded)
            body = event and event_json(event, cited, datetime.now(UTC))
            yield (event_name(event), json_text(body)) if event else None
