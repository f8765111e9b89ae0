"""The events of a reply on their way to a client."""

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

WAITING = 64
"""Events that wait for a slow client before the work does."""

KEEP_ALIVE = 15.0
"""Seconds of silence, after which a comment tells proxies that the stream lives."""

HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@dataclass(slots=True)
class Answering:
    """An Answerer, and what it failed with, of which its events have the words only."""

    answerer: Answerer
    failed: RagError | None = None

    async def answer(self, query: Query, emit: Listener = ignore_event) -> Reply:
        try:
            return await self.answerer.answer(query, emit)
        except RagError as error:
            self.failed = error
            raise


async def events(answerer: Answerer, query: Query) -> AsyncGenerator[Event | None, None]:
    """As the reply is made, and None after each KEEP_ALIVE without any. Closing it ends the work.

    A named failure is the last event, RunFailed; any other is raised.
    """
    sending, receiving = create_memory_object_stream[Event](WAITING)

    async def work() -> None:
        async with sending:
            with suppress(RagError):
                await answerer.answer(query, sending.send)

    task = asyncio.create_task(work())
    try:
        with suppress(EndOfStream):
            while True:
                event = None
                with move_on_after(KEEP_ALIVE):
                    event = await receiving.receive()
                yield event
        await task
    finally:
        receiving.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def broken_by(finish: Finish, stages: Sequence[StageReport]) -> GenerationError | None:
    """What ended an answer amid it, for streams to end with: who reads one must not take it for whole."""
    failures = [report.error for report in stages if report.stage == "generate" and report.error]
    return GenerationError(failures[-1]) if finish == "broken" and failures else None


async def framed(frames: AsyncGenerator[tuple[str, str] | None, None]) -> AsyncGenerator[str, None]:
    """Server-sent events of (name, data), a name being optional; None is a comment."""
    async with aclosing(frames):
        async for frame in frames:
            if frame is None:
                yield ": keep-alive\n\n"
            else:
                name, data = frame
                yield f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n"


class EventStream(StreamingResponse):
    """Of server-sent events. The framework leaves a generator to the garbage collector when its client goes while a
    piece is on its way; this one is closed before the request ends, and the work behind it with it."""

    def __init__(self, frames: AsyncGenerator[str, None]) -> None:
        super().__init__(frames, media_type="text/event-stream", headers=HEADERS)
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._frames):
            await super().__call__(scope, receive, send)
