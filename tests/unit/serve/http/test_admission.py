"""How many answers and searches are worked on at once, and what the others get."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

import httpx2
import pytest
from fakes.answering import ScriptedGenerator
from fakes.serving import RecordingRetriever, scripted_graph

from rag_core.config import ServingSettings
from rag_core.types import Hit, Query
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles
from serve.services import Services

SEARCH = {"query": "Where is the key?"}


@dataclass(kw_only=True)
class HeldRetriever:
    """A retriever that finds nothing, after `release` is set. `arrivals` grows with each call that begins."""

    release: asyncio.Event = field(default_factory=asyncio.Event)
    arrivals: int = 0
    most: int = 0
    running: int = 0

    async def retrieve(self, query: Query, k: int) -> Sequence[Hit]:  # noqa: ARG002
        self.arrivals += 1
        self.running += 1
        self.most = max(self.most, self.running)
        await self.release.wait()
        self.running -= 1
        return []


def graph_with_limits(graph: Services, **limits: int) -> Services:
    return replace(graph, settings=graph.settings.model_copy(update={"serving": ServingSettings(**limits)}))


def client_of(graph: Services) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=build_fastapi(ServedProfiles(graph)), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost")


async def settle() -> None:
    """Lets every task run until it waits for something that does not come."""
    for _ in range(200):
        await asyncio.sleep(0)


def test_searches_beyond_the_limit_wait_and_beyond_the_queue_are_refused_at_once() -> None:
    async def run() -> tuple[HeldRetriever, list[httpx2.Response]]:
        retriever = HeldRetriever()
        async with client_of(graph_with_limits(scripted_graph(retriever), searches=2, queue=3)) as client:  # type: ignore[arg-type]
            tasks = [asyncio.create_task(client.post("/v1/retrieve", json=SEARCH)) for _ in range(5)]
            await settle()
            assert retriever.arrivals == 2
            refused = await client.post("/v1/retrieve", json=SEARCH)
            assert retriever.arrivals == 2
            retriever.release.set()
            return retriever, [*await asyncio.gather(*tasks), refused]

    retriever, responses = asyncio.run(run())
    assert [response.status_code for response in responses] == [200] * 5 + [503]
    assert (retriever.arrivals, retriever.most) == (5, 2)
    problem = responses[-1]
    assert problem.headers["retry-after"] == "1"
    assert problem.json()["error_type"] == "overloaded"
    assert problem.json()["retryable"]
    assert problem.json()["detail"] == "too many searches: 2 are in progress and 3 wait (limit 3)"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v1/profiles"])
def test_other_routes_are_answered_while_all_places_are_taken(path: str) -> None:
    async def run() -> httpx2.Response:
        retriever = HeldRetriever()
        async with client_of(graph_with_limits(scripted_graph(retriever), searches=1, answers=1, queue=0)) as client:  # type: ignore[arg-type]
            body = {"question": "Where is the key?"}
            tasks = [
                asyncio.create_task(client.post("/v1/retrieve", json=SEARCH)),
                asyncio.create_task(client.post("/v1/answer", json=body)),
            ]
            await settle()
            assert retriever.arrivals == 2
            assert (await client.post("/v1/answer", json=body)).status_code == 503
            response = await client.get(path)
            retriever.release.set()
            await asyncio.gather(*tasks)
            return response

    assert asyncio.run(run()).status_code == 200


def test_half_sent_bodies_take_no_place() -> None:
    async def half_sent(end: asyncio.Event) -> AsyncGenerator[bytes, None]:
        yield b'{"query": '
        await end.wait()
        yield b'"Where is the key?"}'

    async def run() -> list[int]:
        end = asyncio.Event()
        async with client_of(
            graph_with_limits(scripted_graph(RecordingRetriever(hits=[])), searches=1, queue=0)
        ) as client:
            headers = {"Content-Type": "application/json"}
            slow = asyncio.create_task(client.post("/v1/retrieve", headers=headers, content=half_sent(end)))
            await settle()
            response = await client.post("/v1/retrieve", json=SEARCH)
            end.set()
            return [response.status_code, (await slow).status_code]

    assert asyncio.run(run()) == [200, 200]


def test_a_place_is_free_again_after_a_stream_a_failure_and_a_cancelled_wait() -> None:
    async def run() -> list[int]:
        retriever = HeldRetriever()
        graph = scripted_graph(retriever, ScriptedGenerator(answers=[]))  # type: ignore[arg-type]
        async with client_of(graph_with_limits(graph, answers=1, queue=1)) as client:
            body = {"question": "Where is the key?"}
            first = asyncio.create_task(client.post("/v1/answer", json={**body, "stream": True}))
            await settle()
            waiting = asyncio.create_task(client.post("/v1/answer", json=body))
            await settle()
            waiting.cancel()
            await settle()
            retriever.release.set()
            statuses = [(await first).status_code]
            statuses += [(await client.post("/v1/answer", json={"question": 1})).status_code for _ in range(2)]
            return [*statuses, (await client.post("/v1/answer", json=body)).status_code]

    assert asyncio.run(run()) == [200, 422, 422, 200]
