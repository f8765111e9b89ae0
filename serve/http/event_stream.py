"""Streams of server-sent events, and the events of a reply while it is generated."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from anyio import EndOfStream, create_memory_object_stream, move_on_after
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rag_core.errors import GenerationError, RagError
from rag_core.events import Event, Listener, ignore_event
from rag_core.protocols import Answerer
from rag_core.types import Finish, Query, Reply, StageReport

MAX_QUEUED_EVENTS = 64
"""The maximum number of events that wait for a slow client. Above it, the work waits too."""

KEEP_ALIVE_SECONDS = 15.0
"""Seconds without an event after which a comment is sent, so that proxies do not close the connection."""

HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@dataclass(slots=True)
class RecordingAnswerer:
    """An Answerer that keeps the exception that it raised. The events contain only the exception's message."""

    answerer: Answerer
    error: RagError | None = None

    async def answer(self, query: Query, emit: Listener = ignore_event) -> Reply:
        try:
            return await self.answerer.answer(query, emit)
        except RagError as error:
            self.error = error
            raise


async def stream_events(answerer: Answerer, query: Query) -> AsyncGenerator[Event | None, None]:
    """Yields the events of the reply as they occur, and None after each `KEEP_ALIVE_SECONDS` without one.

    After a RagError the last event is RunFailed; any other exception is raised. Closing the generator stops the work.
    """
    sender, receiver = create_memory_object_stream[Event](MAX_QUEUED_EVENTS)

    async def answer() -> None:
        async with sender:
            with suppress(RagError):
                await answerer.answer(query, sender.send)

    task = asyncio.create_task(answer())
    try:
        with suppress(EndOfStream):
            while True:
                event = None
                with move_on_after(KEEP_ALIVE_SECONDS):
                    event = await receiver.receive()
                yield event
        await task
    finally:
        receiver.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def generation_error(finish: Finish, stages: Sequence[StageReport]) -> GenerationError | None:
    """The failure that cut an answer short. A stream ends with it, so that no reader takes the answer for complete."""
    failures = [report.error for report in stages if report.stage == "generate" and report.error]
    return GenerationError(failures[-1]) if finish == "broken" and failures else None


async def format_frames(frames: AsyncGenerator[tuple[str, str] | None, None]) -> AsyncGenerator[str, None]:
    """Yields server-sent events for pairs of event name and data. The name can be empty; None becomes a comment."""
    async with aclosing(frames):
        async for frame in frames:
            if frame is None:
                yield ": keep-alive\n\n"
            else:
                name, data = frame
                yield f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n"


class EventStream(StreamingResponse):
    """A response of server-sent events that closes its generator, and so stops the work, before the request ends.

    Starlette leaves the generator to the garbage collector if the client disconnects during a write.
    """

    def __init__(self, frames: AsyncGenerator[str, None]) -> None:
        super().__init__(frames, media_type="text/event-stream", headers=HEADERS)
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._frames):
            await super().__call__(scope, receive, send)
