"""The turns of several tenants: nobody has all of them, and they go round."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from starlette.exceptions import HTTPException

from serve.http.admission import Gate, share_of


class Turns:
    """Requests of tenants at one gate. `begun` has the names of those that have a turn or had one, in order."""

    def __init__(self, gate: Gate) -> None:
        self.gate, self.begun = gate, list[str]()
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def request(self, *names: str) -> None:
        """The tenant of a request is the first letter of its name."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._take_turn(name))
            await asyncio.sleep(0)

    async def _take_turn(self, name: str) -> None:
        async with self.gate.admit(name[0]):
            self.begun.append(name)
            await self._ends[name].wait()

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
            await self._tasks[name]
            await asyncio.sleep(0)

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks[name], return_exceptions=True)
        await asyncio.sleep(0)


def test_a_quiet_tenant_gets_a_turn_at_once_next_to_one_that_requests_all() -> None:
    async def run() -> list[str]:
        turns = Turns(Gate("searches", limit=4, queue=9, share=share_of(4)))
        await turns.request("a1", "a2", "a3", "a4", "a5", "q1")
        return turns.begun

    assert asyncio.run(run()) == ["a1", "a2", "a3", "q1"]


def test_waiting_tenants_take_turns_whatever_the_length_of_their_queues() -> None:
    async def run() -> list[str]:
        turns = Turns(Gate("searches", limit=1, queue=9, share=1))
        await turns.request("a1", "a2", "a3", "a4", "b1", "b2", "c1")
        await turns.end("a1", "a2", "b1", "c1", "a3", "b2", "a4")
        return turns.begun

    assert asyncio.run(run()) == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


def test_a_free_turn_is_for_the_tenant_that_has_the_fewest() -> None:
    async def run() -> list[str]:
        turns = Turns(Gate("searches", limit=3, queue=9, share=3))
        await turns.request("a1", "a2", "b1", "a3", "b2", "c1")
        await turns.end("a1", "b1")
        return turns.begun

    assert asyncio.run(run()) == ["a1", "a2", "b1", "c1", "b2"]


def test_a_full_queue_of_one_tenant_refuses_only_its_own_requests() -> None:
    async def run() -> list[str]:
        turns = Turns(Gate("searches", limit=1, queue=1, share=1))
        await turns.request("a1", "a2", "b1")
        with pytest.raises(HTTPException, match="1 are in progress and 1 wait"):
            await turns.gate.admit("a").__aenter__()
        await turns.end("a1", "a2", "b1")
        return turns.begun

    assert asyncio.run(run()) == ["a1", "a2", "b1"]


def test_a_cancelled_request_occupies_neither_a_turn_nor_a_place() -> None:
    async def run() -> list[str]:
        turns = Turns(Gate("searches", limit=1, queue=1, share=1))
        await turns.request("a1", "a2")
        await turns.cancel("a2")
        await turns.request("a3")
        await turns.cancel("a1")
        await turns.end("a3")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(turns.gate.admit("b"))
        return turns.begun

    assert asyncio.run(run()) == ["a1", "a3"]


def test_a_turn_that_ends_while_the_next_request_is_cancelled_is_for_the_one_after_it() -> None:
    async def run() -> list[str]:
        turns = Turns(Gate("searches", limit=1, queue=2, share=1))
        await turns.request("a1", "a2", "a3")
        turns._ends["a1"].set()
        turns._tasks["a2"].cancel()  # its task runs after the turn has ended
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return turns.begun

    assert asyncio.run(run()) == ["a1", "a3"]


def test_a_turn_that_begins_while_its_request_is_cancelled_is_passed_on() -> None:
    async def run() -> list[str]:
        turns = Turns(Gate("searches", limit=1, queue=2, share=1))
        await turns.request("a1", "a2", "b1")
        turns._ends["a1"].set()
        await asyncio.sleep(0)  # the turn of a2 has begun, and its task has not run since
        await turns.cancel("a2")
        return turns.begun

    assert asyncio.run(run()) == ["a1", "b1"]
