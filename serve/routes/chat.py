"""`/v1/chat/completions`: chat completions for OpenAI clients, answered from a collection instead of by a model."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import uuid4

from fastapi import APIRouter, Request, Response

from rag_core.config import Settings
from rag_core.events import Event, fold
from rag_core.protocols import Answerer
from rag_core.settings import list_shipped_profiles
from rag_core.types import Message, Query
from rag_core.wire import json_text
from serve.bodies.chat import Chat
from serve.bodies.chat_events import CompletionSettings, can_retract, closing_chunks, completion_json, event_chunks
from serve.bodies.openapi import BODY_PROBLEMS, MODEL_PROBLEMS, success_response
from serve.bodies.queries import build_query
from serve.bodies.requests import SearchScope
from serve.bodies.responses import Completion, Models
from serve.http.caller import Caller
from serve.http.connections import open_catalog
from serve.http.dependencies import CurrentCaller, CurrentGraph
from serve.http.event_stream import EventStream, RecordingAnswerer, format_frames, generation_error, stream_events
from serve.http.problems import problem_body
from serve.http.responses import json_response, server_timing
from serve.variants import AnswerVariant, check_profile, current_variants

Frame: TypeAlias = tuple[str, str] | None

router = APIRouter()

MAX_MODELS = 1000


@router.post("/v1/chat/completions", responses=success_response(Completion, BODY_PROBLEMS, MODEL_PROBLEMS, events=True))
async def complete(body: Chat, caller: CurrentCaller, graph: CurrentGraph, request: Request) -> Response:
    """Answers the user's last message. The earlier messages are the history, unless `rag.conversation_id` is set."""
    query = _build_chat_query(body, caller, graph.settings)
    variant = current_variants(request.app).answer_variant(body.rag.options)
    request.state.pipeline_version = variant.pipeline_version
    settings = _completion_settings(body, variant)
    if body.stream:
        return await _stream_response(_stream_chunks(variant.answerer, query, settings), request)
    reply = await variant.answerer.answer(query)
    return json_response(completion_json(reply, settings, datetime.now(UTC)), headers=server_timing(reply.stages))


@router.get("/v1/models", responses=success_response(Models))
def models(caller: CurrentCaller, graph: CurrentGraph) -> dict[str, Any]:
    """Lists each collection twice: by its name, and by its name with the served profile."""
    with open_catalog(graph, caller) as catalog:
        names = [row["name"] for row in catalog.readable_collections(caller.groups, "", MAX_MODELS)]
    ids = [id for name in names for id in (name, f"{name}:{graph.settings.profile}")]
    data = [{"id": id, "object": "model", "created": 0, "owned_by": "rag-on-ray"} for id in ids]
    return {"object": "list", "data": data}


def _build_chat_query(body: Chat, caller: Caller, settings: Settings) -> Query:
    """Raises UsageError if the request names a profile that is not served."""
    rag = body.rag
    collection, _, profile = body.model.rpartition(":")
    if not collection or profile not in {*list_shipped_profiles(), settings.profile}:
        collection, profile = body.model, ""  # a collection's name can contain a colon
    check_profile(rag.profile or profile, settings)
    scope = SearchScope(collection=rag.collection or collection, filters=rag.filters)
    query = build_query(scope, body.messages[-1].content, caller, rag.conversation_id)
    if rag.conversation_id:
        return query
    history = tuple(
        Message(role=message.role, text=message.content)
        for message in body.messages[:-1]
        if message.role == "user" or message.role == "assistant"
    )
    return replace(query, history=history)


def _completion_settings(body: Chat, variant: AnswerVariant) -> CompletionSettings:
    return CompletionSettings(
        id=f"chatcmpl-{uuid4().hex}",
        created=int(time.time()),
        model=body.model,
        pipeline_version=variant.pipeline_version,
        citations=body.rag.citations,
        explain=body.rag.explain,
        usage=body.stream_options is not None and body.stream_options.include_usage,
        hold_text=can_retract(variant.settings.guard),
    )


async def _stream_response(frames: AsyncGenerator[Frame, None], request: Request) -> Response:
    """Waits for the first frame, which has the sources. An earlier failure is a problem with its own status."""
    first = await anext(frames)
    return EventStream(format_frames(_end_with_done(first, frames, request)))


async def _stream_chunks(answerer: Answerer, query: Query, settings: CompletionSettings) -> AsyncGenerator[Frame, None]:
    """Yields the chunks of the reply, and None for a keep-alive. Raises the error if the reply fails."""
    reply_events: list[Event] = []
    recording = RecordingAnswerer(answerer)
    async with aclosing(stream_events(recording, query)) as events:
        async for event in events:
            if event is None:
                yield None
                continue
            reply_events.append(event)
            for chunk in event_chunks(event, settings):
                yield "", json_text(chunk)
    if recording.error:
        raise recording.error
    reply = fold(reply_events)
    for chunk in closing_chunks(reply, settings, datetime.now(UTC)):
        yield "", json_text(chunk)
    if error := generation_error(reply.answer.finish, reply.stages):
        raise error


async def _end_with_done(
    first: Frame, frames: AsyncGenerator[Frame, None], request: Request
) -> AsyncGenerator[Frame, None]:
    """Yields the frames, then an error frame if they fail, then `[DONE]`, which clients wait for."""
    async with aclosing(frames):
        yield first
        try:
            async for frame in frames:
                yield frame
        except Exception as failure:  # noqa: BLE001 - a stream must end with an event, whatever fails
            error = problem_body(failure, request.url.path, request.state.correlation_id)["error"]
            yield "", json_text({"error": error})
        yield "", "[DONE]"
