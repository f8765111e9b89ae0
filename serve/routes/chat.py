"""`/v1/chat/completions` and `/v1/models`: chat completions for OpenAI clients.

`model` names the collection whose documents the answer is written from.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import uuid4

from fastapi import APIRouter, Depends, Request, Response

from rag_core.events import Event, fold
from rag_core.protocols import Answerer
from rag_core.types import Message, Query
from rag_core.wire.openai import Completion, Model, Models
from rag_core.wire.shape import json_text
from serve.authentication.caller import Caller
from serve.bodies.chat import Chat
from serve.bodies.chat_events import Envelope, can_retract, closing_chunks, describe_completion, event_chunks
from serve.bodies.openapi import BODY_PROBLEMS, MODEL_PROBLEMS, RATE_PROBLEMS, success_response
from serve.bodies.queries import build_query
from serve.bodies.requests import SearchScope
from serve.http.admission import take_answer_turn
from serve.http.connections import open_catalog
from serve.http.dependencies import Chatter, CurrentProfiles, Reader
from serve.http.event_stream import EventStream, RecordingAnswerer, format_frames, generation_error, stream_events
from serve.http.policy import check_guard
from serve.http.problems import describe_problem
from serve.http.rate_limits import MeteredAnswerer, limit_answers
from serve.http.responses import json_response, server_timing
from serve.profiles import ServedProfiles
from serve.variants import AnswerVariant

Frame: TypeAlias = tuple[str, str] | None
"""The name of an event, which OpenAI's format leaves empty, and its data. None is a keep-alive."""

router = APIRouter()

MAX_LISTED_COLLECTIONS = 1000


@router.post(
    "/v1/chat/completions",
    responses=success_response(Completion, BODY_PROBLEMS, MODEL_PROBLEMS, RATE_PROBLEMS, events=True),
    dependencies=[Depends(limit_answers), Depends(take_answer_turn)],
)
async def complete(body: Chat, caller: Chatter, profiles: CurrentProfiles, request: Request) -> Response:
    """Answers the user's last message.

    The history is the earlier messages or, with `rag.conversation_id`, the stored conversation.
    """
    collection, profile = _parse_model(body, profiles)
    query = _build_chat_query(body, caller, collection)
    variants, exposure = await profiles.assign(profile, query)
    replaced = profiles.own_settings.guard.mode if profile else "off"
    check_guard(caller, body.rag.guard, variants.services.settings.guard.mode, replaced)
    variant = variants.answer_variant(body.rag.options)
    request.state.components = variant.components
    envelope = _build_envelope(body, variant)
    query = replace(query, answer_id=envelope.id)
    answerer = MeteredAnswerer(variant.recorded_answerer(envelope.id, exposure), profiles.own.services, caller)
    if body.stream:
        return await _stream_response(_stream_chunks(answerer, query, envelope), request)
    reply = await answerer.answer(query)
    return json_response(describe_completion(reply, envelope, datetime.now(UTC)), headers=server_timing(reply.stages))


@router.get("/v1/models", responses=success_response(Models))
def models(caller: Reader, profiles: CurrentProfiles) -> Response:
    """Lists each collection by its name, and by its name with each served profile."""
    with open_catalog(profiles.own.services, caller) as catalog:
        names = [row["name"] for row in catalog.readable_collections(caller.groups, "", MAX_LISTED_COLLECTIONS)]
    ids = [id for name in names for id in (name, *(f"{name}:{profile}" for profile in profiles.names))]
    data = [Model(id=id, object="model", created=0, owned_by="rag-on-ray") for id in ids]
    return json_response(Models(object="list", data=data))


def _parse_model(body: Chat, profiles: ServedProfiles) -> tuple[str, str]:
    """The collection and the profile of a chat request; an empty profile is the gateway's own.

    `model` is read as `collection:profile` if the part after the last colon is a known profile, else as a collection.
    """
    collection, _, profile = body.model.rpartition(":")
    if not collection or not profiles.knows(profile):
        collection, profile = body.model, ""  # no colon, or one that belongs to the collection's name
    return body.rag.collection or collection, body.rag.profile or profile


def _build_chat_query(body: Chat, caller: Caller, collection: str) -> Query:
    """Raises FilterError for a filter that breaks the grammar."""
    rag = body.rag
    scope = SearchScope(collection=collection, filters=rag.filters)
    query = build_query(scope, body.messages[-1].content, caller, rag.conversation_id)
    if rag.conversation_id:
        return query
    history = tuple(
        Message(role=message.role, text=message.content)
        for message in body.messages[:-1]
        if message.role == "user" or message.role == "assistant"
    )
    return replace(query, history=history)


def _build_envelope(body: Chat, variant: AnswerVariant) -> Envelope:
    return Envelope(
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
    """Waits for the first frame.

    It is the opening chunk, sent when the passages are known, or a keep-alive after `KEEP_ALIVE_SECONDS`. A failure
    before it is a problem with its own status; a later one is an error frame.
    """
    first = await anext(frames)
    return EventStream(format_frames(_end_with_done(first, frames, request)))


async def _stream_chunks(answerer: Answerer, query: Query, envelope: Envelope) -> AsyncGenerator[Frame, None]:
    """Yields the chunks of the reply, and None for a keep-alive.

    Raises the error of the reply, also after the last chunk if the model broke off.
    """
    reply_events: list[Event] = []
    recording = RecordingAnswerer(answerer)
    async with aclosing(stream_events(recording, query)) as events:
        async for event in events:
            if event is None:
                yield None
                continue
            reply_events.append(event)
            for chunk in event_chunks(event, envelope):
                yield "", json_text(chunk)
    if recording.error:
        raise recording.error
    reply = fold(reply_events)
    for chunk in closing_chunks(reply, envelope, datetime.now(UTC)):
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
            problem = describe_problem(failure, request.url.path, request.state.correlation_id)
            yield "", json_text({"error": problem.error})
        yield "", "[DONE]"
