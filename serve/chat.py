"""OpenAI's chat completions: any of its clients asks a collection as it would ask a model."""

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import uuid4

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from rag_core.config import Settings
from rag_core.errors import RagError, UsageError
from rag_core.events import Event, Listener, fold, nobody
from rag_core.protocols import Answerer
from rag_core.types import Message, Query, Reply
from rag_core.wire import json_text
from serve.access import Caller
from serve.answers import STREAM_HEADERS
from serve.chat_events import Form, chunks, completion, last_chunks, retractable
from serve.chat_schemas import Chat
from serve.opened import catalog
from serve.problems import problem
from serve.requests import Served, Who, query
from serve.responses import as_json
from serve.schemas import Asked
from serve.stream import events, framed

Frame: TypeAlias = tuple[str, str] | None

UNNAMED_FAULT = {"message": "the gateway failed; its log says why", "type": "internal", "code": "internal"}

router = APIRouter()

MOST_MODELS = 1000
_log = logging.getLogger(__name__)


@router.post("/v1/chat/completions")
async def complete(asked: Chat, who: Who, graph: Served, request: Request) -> Response:
    """The client's messages are the conversation; with `rag.conversation_id` the server's own are."""
    question, form = _question(asked, who, graph.settings), _form(asked, graph.settings)
    if asked.stream:
        return await _streamed(_frames(graph.answerer, question, form), request)
    reply = await graph.answerer.answer(question)
    return as_json(completion(reply, form, datetime.now(UTC)))


@router.get("/v1/models")
def models(who: Who, graph: Served) -> dict[str, Any]:
    """Each collection, by itself and with the profile that is served."""
    with catalog(graph, who) as known:
        names = [row["name"] for row in known.readable_collections(who.groups, "", MOST_MODELS)]
    ids = [id for name in names for id in (name, f"{name}:{graph.settings.profile}")]
    return {"object": "list", "data": [_model(id) for id in ids]}


def _model(id: str) -> dict[str, Any]:
    return {"id": id, "object": "model", "created": 0, "owned_by": "rag-on-ray"}


def _question(asked: Chat, who: Caller, settings: Settings) -> Query:
    """UsageError if another profile is wanted than the one that is served."""
    rag, (collection, profile) = asked.rag, _named(asked.model)
    if (wanted := rag.profile or profile or settings.profile) != settings.profile:
        raise UsageError(f"profile must be {settings.profile}, which is served here, got {wanted!r}")
    scope = Asked(collection=rag.collection or collection, filters=rag.filters)
    asking = query(scope, asked.messages[-1].content, who, rag.conversation_id)
    return asking if rag.conversation_id else replace(asking, history=_history(asked))


def _named(model: str) -> tuple[str, str]:
    """Collection and profile, which may be empty."""
    collection, _, profile = model.rpartition(":")
    return (collection, profile) if collection else (model, "")


def _history(asked: Chat) -> tuple[Message, ...]:
    said = asked.messages[:-1]
    return tuple(
        Message(role=each.role, text=each.content) for each in said if each.role == "user" or each.role == "assistant"
    )


def _form(asked: Chat, settings: Settings) -> Form:
    return Form(
        id=f"chatcmpl-{uuid4().hex}",
        created=int(time.time()),
        model=asked.model,
        pipeline_version=settings.pipeline_version,
        citations=asked.rag.citations,
        explain=asked.rag.explain,
        usage=asked.stream_options.include_usage,
        held=retractable(settings.guard),
    )


async def _streamed(frames: AsyncGenerator[Frame, None], request: Request) -> Response:
    """Begins with the sources, and so what fails before them is a problem with its own status."""
    first = await anext(frames)
    rest = framed(_to_the_end(first, frames, request))
    return StreamingResponse(rest, media_type="text/event-stream", headers=STREAM_HEADERS)


async def _frames(answerer: Answerer, question: Query, form: Form) -> AsyncGenerator[Frame, None]:
    """Raises what the reply failed with."""
    told: list[Event] = []
    answering = _Answering(answerer)
    async with aclosing(events(answering, question)) as telling:
        async for event in telling:
            if event is None:
                yield None
                continue
            told.append(event)
            for chunk in chunks(event, form):
                yield "", json_text(chunk)
    if answering.failed:
        raise answering.failed
    for chunk in last_chunks(fold(told), form, datetime.now(UTC)):
        yield "", json_text(chunk)


async def _to_the_end(
    first: Frame, frames: AsyncGenerator[Frame, None], request: Request
) -> AsyncGenerator[Frame, None]:
    """A failure is the last but one: clients wait for `[DONE]`."""
    async with aclosing(frames):
        yield first
        try:
            async for frame in frames:
                yield frame
        except Exception as error:  # noqa: BLE001 - whatever it is, a stream must not end without a word
            yield "", json_text({"error": _fault(error, request)})
        yield "", "[DONE]"


def _fault(error: Exception, request: Request) -> dict[str, Any]:
    if isinstance(error, RagError):
        fault: dict[str, Any] = problem(error, request.url.path, request.state.correlation_id)["error"]
        return fault
    _log.error("%s failed", request.url.path, exc_info=error)
    return {**UNNAMED_FAULT, "param": None}


@dataclass(slots=True)
class _Answering:
    """An Answerer, and what it failed with, of which its events have the words only."""

    answerer: Answerer
    failed: RagError | None = None

    async def answer(self, query: Query, tell: Listener = nobody) -> Reply:
        try:
            return await self.answerer.answer(query, tell)
        except RagError as error:
            self.failed = error
            raise
