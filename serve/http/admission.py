"""The number of answers and searches that the gateway works on at the same time.

Beyond it requests wait, and beyond a full queue they are refused at once. Without a limit all requests of a busy
gateway are late together, and their time limits throw the work away. Each tenant has its own queue, and no tenant gets
all turns, so the load of one hardly delays the others. Health checks and all other routes have no limit.
"""

import asyncio
import os
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fastapi import Request
from starlette.exceptions import HTTPException

from rag_core.config import ExtractiveGenerator, Settings
from serve.http.dependencies import Chatter, Reader

ANSWERS_OF_LANGUAGE_MODELS = 64
"""The number of answers in progress if a language model writes them. They mostly wait for it."""


@dataclass(slots=True)
class Gate:
    """Admits `limit` requests at the same time, at most `share` of them of one tenant. Messages call them `what`.

    Of each tenant `queue` others wait, in their order. A free turn is for the tenant with the fewest turns, then for
    the one that has waited longest since its last turn.
    """

    what: str
    limit: int
    queue: int
    share: int
    _running: Counter[str] = field(default_factory=Counter)
    _waiting: dict[str, deque[asyncio.Future[None]]] = field(default_factory=dict)
    """The queues that are not empty. A tenant that gets a turn and still waits goes to the end."""

    @asynccontextmanager
    async def admit(self, tenant: str) -> AsyncIterator[None]:
        """Waits for a turn, which lasts for the block. Raises HTTPException with status 503 if the queue is full."""
        await self._wait_for_turn(tenant)
        try:
            yield
        finally:
            self._end_turn(tenant)

    async def _wait_for_turn(self, tenant: str) -> None:
        self._check_queue(tenant)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        self._begin_turns()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._end_turn(tenant)  # it began just before the cancellation
            elif turn in (queue := self._waiting.get(tenant, deque())):
                queue.remove(turn)
                if not queue:
                    del self._waiting[tenant]
            raise

    def _check_queue(self, tenant: str) -> None:
        waiting, running = len(self._waiting.get(tenant, ())), self._running[tenant]
        is_free = running < self.share and self._running.total() < self.limit
        if waiting >= self.queue and not is_free:
            raise HTTPException(
                503, f"too many {self.what}: {running} are in progress and {waiting} wait (limit {self.queue})"
            )

    def _begin_turns(self) -> None:
        while self._running.total() < self.limit:
            tenants = [tenant for tenant in self._waiting if self._running[tenant] < self.share]
            if not tenants:
                return
            tenant = min(tenants, key=self._running.__getitem__)
            queue = self._waiting.pop(tenant)
            turn = queue.popleft()
            if queue:
                self._waiting[tenant] = queue
            if not turn.cancelled():  # a cancelled request stays in the queue until its task runs again
                turn.set_result(None)
                self._running[tenant] += 1

    def _end_turn(self, tenant: str) -> None:
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
        self._begin_turns()


@dataclass(frozen=True, slots=True)
class Gates:
    answers: Gate
    searches: Gate


def build_gates(settings: Settings) -> Gates:
    """Questions compete for the CPUs: more of them at the same time are only slower. A language model answers many."""
    serving, cpus = settings.serving, os.cpu_count() or 1
    default = 2 * cpus if isinstance(settings.generation, ExtractiveGenerator) else ANSWERS_OF_LANGUAGE_MODELS
    answers, searches = serving.answers or default, serving.searches or 4 * cpus
    has_tenants = settings.auth.mode != "none"
    return Gates(
        Gate("answers", answers, serving.queue, share_of(answers) if has_tenants else answers),
        Gate("searches", searches, serving.queue, share_of(searches) if has_tenants else searches),
    )


def share_of(limit: int) -> int:
    """The turns that one tenant can have: three quarters, so that another tenant finds a free one."""
    return limit - limit // 4


async def take_search_turn(request: Request, caller: Reader) -> AsyncIterator[None]:
    """Waits for a turn to search, which ends with the response. The body is complete, so slow clients occupy none."""
    async with request.app.state.gates.searches.admit(caller.tenant):
        yield


async def take_answer_turn(request: Request, caller: Chatter) -> AsyncIterator[None]:
    """Waits for a turn to answer, which ends with the response. The body is complete, so slow clients occupy none."""
    async with request.app.state.gates.answers.admit(caller.tenant):
        yield
