"""OpenAI's chat completions: any of its clients asks a collection as it would ask a model."""

import time
from collections.abc import AsyncGenerator, Container
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import uuid4

from fastapi import APIRouter, Request, Response

from rag_core.config import Settings
from rag_core.events import Event, fold
from rag_core.protocols import Answerer
from rag_core.settings import shipped_profiles
from rag_core.types import Message, Query
from rag_core.wire import json_text
from serve.bodies.chat import Chat
from serve.bodies.chat_events import Form, chunks, completion, last_chunks, retractable
from serve.bodies.openapi import ASKS_MODELS, BODY, shows
from serve.bodies.queries import query
from serve.bodies.requests import Asked
from serve.bodies.responses import Completion, Models
from serve.http.access import Caller
from serve.http.connections import catalog
from serve.http.dependencies import Served, Who
from serve.http.event_stream import Answering, EventStream, broken_by, events, framed
from serve.http.problems import problem
from serve.http.responses import as_json, server_timing
from serve.variants import AnswerVariant, check_profile, variants

Frame: TypeAlias = tuple[str, str] | None

router = APIRouter()

MOST_MODELS = 1000


@router.post("/v1/chat/completions", responses=shows(Completion, BODY, ASKS_MODELS, events=True))
async def complete(asked: Chat, who: Who, graph: Served, request: Request) -> Response:
    """The client's messages are the conversation; with `rag.conversation_id` the server's own are."""
    question = _question(asked, who, graph.settings)
    chosen = variants(request.app).answer(asked.rag.options)
    request.state.pipeline_version = chosen.pipeline_version
    form = _form(asked, chosen)
    if asked.stream:
        return await _streamed(_frames(chosen.answerer, question, form), request)
    reply = await chosen.answerer.answer(question)
    return as_json(completion(reply, form, datetime.now(UTC)), headers=server_timing(reply.stages))


@router.get("/v1/models", responses=shows(Models))
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
    rag, (collection, profile) = asked.rag, _named(asked.model, {*shipped_profiles(), settings.profile})
    check_profile(rag.profile or profile, settings)
    scope = Asked(collection=rag.collection or collection, filters=rag.filters)
    asking = query(scope, asked.messages[-1].content, who, rag.conversation_id)
    return asking if rag.conversation_id else replace(asking, history=_history(asked))


def _named(model: str, profiles: Container[str]) -> tuple[str, str]:
    """Collection and profile, which is empty where none of these is named: a collection's own name may have a colon."""
    collection, _, profile = model.rpartition(":")
    return (collection, profile) if collection and profile in profiles else (model, "")


def _history(asked: Chat) -> tuple[Message, ...]:
    said = asked.messages[:-1]
    return tuple(
        Message(role=each.role, text=each.content) for each in said if each.role == "user" or each.role == "assistant"
    )


def _form(asked: Chat, chosen: AnswerVariant) -> Form:
    return Form(
        id=f"chatcmpl-{uuid4().hex}",
        created=int(time.time()),
        model=asked.model,
        pipeline_version=chosen.pipeline_version,
        citations=asked.rag.citations,
        explain=asked.rag.explain,
        usage=asked.stream_options is not None and asked.stream_options.include_usage,
        held=retractable(chosen.settings.guard),
    )


async def _streamed(frames: AsyncGenerator[Frame, None], request: Request) -> Response:
    """Begins with the sources, and so what fails before them is a problem with its own status."""
    first = await anext(frames)
    return EventStream(framed(_to_the_end(first, frames, request)))


async def _frames(answerer: Answerer, question: Query, form: Form) -> AsyncGenerator[Frame, None]:
    """Raises what the reply failed with."""
    told: list[Event] = []
    answering = Answering(answerer)
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
    reply = fold(told)
    for chunk in last_chunks(reply, form, datetime.now(UTC)):
        yield "", json_text(chunk)
    if broken := broken_by(reply.answer.finish, reply.stages):
        raise broken


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
            fault = problem(error, request.url.path, request.state.correlation_id)["error"]
            yield "", json_text({"error": fault})
        yield "", "[DONE]"
