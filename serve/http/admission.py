"""The number of answers and searches that the gateway works on at the same time.

Beyond it requests wait, and beyond a full queue they are refused at once. Without a limit all requests of a busy
gateway are late together, and their time limits throw the work away. Health checks and all other routes have no limit.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_core.config import ExtractiveGenerator, Settings

ANSWERS_OF_LANGUAGE_MODELS = 64
"""The number of answers in progress if a language model writes them. They mostly wait for it."""


@dataclass(slots=True)
class Gate:
    """Admits `limit` requests at the same time. `queue` others wait, in their order. Messages call them `what`."""

    what: str
    limit: int
    queue: int
    _turns: asyncio.Semaphore = field(init=False)
    _waiting: int = 0

    def __post_init__(self) -> None:
        self._turns = asyncio.Semaphore(self.limit)

    def check(self) -> None:
        """Raises HTTPException with status 503 if the queue is full."""
        if self._turns.locked() and self._waiting >= self.queue:
            raise HTTPException(
                503, f"too many {self.what}: {self.limit} are in progress and {self._waiting} wait (limit {self.queue})"
            )

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[None]:
        """Waits for a turn, which lasts for the block. Raises HTTPException with status 503 if the queue is full."""
        self.check()
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turns.release()


def build_gates(settings: Settings) -> Mapping[str, Gate]:
    """The gates by path prefix.

    Questions compete for the CPUs: more of them at the same time are only slower. A language model answers many.
    """
    serving, cpus = settings.serving, os.cpu_count() or 1
    default = 2 * cpus if isinstance(settings.generation, ExtractiveGenerator) else ANSWERS_OF_LANGUAGE_MODELS
    answers = Gate("answers", serving.answers or default, serving.queue)
    searches = Gate("searches", serving.searches or 4 * cpus, serving.queue)
    return {
        "/v1/answer": answers,
        "/v1/chat/completions": answers,
        "/v1/retrieve": searches,
        "/v1/vector_stores/": searches,
    }


@dataclass(frozen=True, slots=True)
class Admission:
    """Admits requests by the gate of their path prefix; other paths pass.

    A full queue is noticed before the body is read. A turn begins when the body is complete, so that slow clients
    occupy none, and ends with the response.
    """

    app: ASGIApp
    gates: Mapping[str, Gate]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        gate = next((gate for prefix, gate in self.gates.items() if path.startswith(prefix)), None)
        if gate is None:
            await self.app(scope, receive, send)
            return
        gate.check()
        is_admitted = False
        async with AsyncExitStack() as turn:

            async def receive_part() -> Message:
                nonlocal is_admitted
                message = await receive()
                if message["type"] == "http.request" and not message.get("more_body", False) and not is_admitted:
                    is_admitted = True
                    await turn.enter_async_context(gate.admit())
                return message

            await self.app(scope, receive_part, send)
