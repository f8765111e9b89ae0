"""`/v1/retrieve` over a real store: the options of a request, its pages, and its response when time is over."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest
from gateways import run_with_gateway
from trees import hashing_settings, ingest, write

from rag_core.protocols import Leg, Ranking
from rag_core.retrieval.hybrid import Hybrid
from rag_core.retrieval.variants import FusedVariants
from rag_core.storage.postgres import Postgres
from rag_core.types import Query
from serve.services import Services, open_shared_resources

pytestmark = pytest.mark.postgres

T = TypeVar("T")

FILES = {f"{number:02}.md": f"# Keys {number}\n\nSigning keys of desk {number} are replaced." for number in range(12)}
LONG = "\n\n".join(f"# Part {part}\n\nKeys of part {part} are replaced every {part} days." for part in range(6))


@pytest.fixture
def graph(store: Postgres, tmp_path: Path) -> Services:
    settings = hashing_settings(f"store.url={store.dsn}", "retrieval.depth=10", "answering.budget=none")
    ingest(store, write(tmp_path, {**FILES, "long.md": LONG}), settings=settings)
    return open_shared_resources(settings).build_services(settings)


def retrieve(graph: Services, *bodies: Mapping[str, Any]) -> list[httpx2.Response]:
    async def work(client: httpx2.AsyncClient) -> list[httpx2.Response]:
        return [await client.post("/v1/retrieve", json={"query": "signing keys", **body}) for body in bodies]

    return run_with_gateway(graph, work)


def test_options_change_the_search_of_one_request(graph: Services) -> None:
    explained, lexical, fused, few, plain = retrieve(
        graph,
        {"explain": True},
        {"strategies": ["bm25"], "explain": True},
        {"fusion_method": "rrf", "top_k": 1},
        {"max_chunks_per_document": 1, "top_k": 10, "query": "keys replaced part"},
        {},
    )
    assert {name for hit in explained.json()["results"] for name in hit["retrievers"]} == {"dense", "bm25"}
    assert {tuple(hit["retrievers"]) for hit in lexical.json()["results"]} == {("bm25",)}
    assert {row["stage"] for row in lexical.json()["stages"]} == {"bm25", "fuse", "fetch"}
    assert fused.json()["results"][0]["score"] in {round(1 / 61 + 1 / rank, 6) for rank in range(61, 72)}
    assert len({hit["document_id"] for hit in few.json()["results"]}) == len(few.json()["results"])
    assert plain.json()["pipeline_version"] == explained.json()["pipeline_version"]


def test_a_body_names_its_pipeline_and_the_header_its_components(graph: Services) -> None:
    plain, varied = retrieve(graph, {}, {"fusion_method": "rrf"})
    assert plain.json()["pipeline_version"] != varied.json()["pipeline_version"]
    assert plain.headers["x-pipeline-version"] == varied.headers["x-pipeline-version"]
    assert plain.headers["x-pipeline-version"].count(":") == 3


def test_the_profile_can_be_named_and_then_it_was_chosen(graph: Services) -> None:
    named, other = retrieve(graph, {"profile": "default"}, {"profile": "pmc"})
    assert named.json()["profile"] == {"name": "default", "selected_by": "explicit"}
    assert (other.status_code, other.json()["detail"]) == (
        422,
        "profile must be one of default, got 'pmc'",
    )


def pages(graph: Services, size: int, between: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    async def work(client: httpx2.AsyncClient) -> list[dict[str, Any]]:
        body: dict[str, Any] = {"query": "signing keys", "top_k": size}
        results: list[dict[str, Any]] = []
        while True:
            page = (await client.post("/v1/retrieve", json=body)).json()
            results += page["results"]
            if page["next_cursor"] is None:
                return results
            await asyncio.to_thread(between)
            body["cursor"] = page["next_cursor"]

    return run_with_gateway(graph, work)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3, 4, 10])
def test_pages_are_the_ranking_in_pieces_as_long_as_its_candidates(graph: Services, size: int) -> None:
    async def full_ranking(client: httpx2.AsyncClient) -> list[str]:
        body = {"query": "signing keys", "top_k": 10}
        return [hit["chunk_id"] for hit in (await client.post("/v1/retrieve", json=body)).json()["results"]]

    ranked = run_with_gateway(graph, full_ranking)
    hits = pages(replace(graph, **reopen(graph)), size)
    assert [hit["chunk_id"] for hit in hits] == ranked
    assert [hit["rank"] for hit in hits] == list(range(1, 11))


def reopen(graph: Services) -> dict[str, Any]:
    """Returns a new corpus and retriever. The connections of the first ones belong to the loop that opened them."""
    anew = open_shared_resources(graph.settings).build_services(graph.settings)
    return {"corpus": anew.corpus, "retriever": anew.retriever, "answerer": anew.answerer}


def test_pages_show_no_hit_twice_while_documents_are_added(graph: Services, store: Postgres, tmp_path: Path) -> None:
    numbers = iter(range(100))

    def add() -> None:
        write(tmp_path, {f"new-{next(numbers)}.md": "Signing keys signing keys."})
        ingest(store, tmp_path, settings=graph.settings)

    ids = [hit["chunk_id"] for hit in pages(graph, 3, add)]
    assert len(ids) == len(set(ids))


def test_a_cursor_of_another_question_is_refused(graph: Services) -> None:
    async def work(client: httpx2.AsyncClient) -> list[int]:
        first = await client.post("/v1/retrieve", json={"query": "signing keys", "top_k": 2})
        cursor = first.json()["next_cursor"]
        others: list[dict[str, Any]] = [
            {"query": "locks"},
            {"query": "signing keys", "strategies": ["bm25"]},
            {"query": "signing keys", "filters": {"key": "format", "type": "eq", "value": "markdown"}},
        ]
        answers = [await client.post("/v1/retrieve", json={**body, "cursor": cursor}) for body in others]
        longer = await client.post("/v1/retrieve", json={"query": "signing keys", "top_k": 5, "cursor": cursor})
        return [answer.status_code for answer in answers] + [longer.status_code]

    assert run_with_gateway(graph, work) == [422, 422, 422, 200]


def test_a_long_message_is_answered_from_a_search_with_its_beginning(graph: Services) -> None:
    leg = Heeding()
    find_hybrid(graph).legs["dense"] = leg  # type: ignore[index]
    body = {"model": "default", "messages": [{"role": "user", "content": "signing keys " * 2_000}]}

    async def work(client: httpx2.AsyncClient) -> httpx2.Response:
        return await client.post("/v1/chat/completions", json=body)

    assert run_with_gateway(graph, work).status_code == 200
    assert leg.heard == ["signing keys " * 76 + "signing"]


class Heeding:
    """A leg that finds nothing, and keeps its queries."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def rank(self, query: Query, k: int) -> Ranking:  # noqa: ARG002
        self.heard.append(query.text)
        return []

    async def score(self, query: Query, chunk_ids: Sequence[object]) -> list[float]:  # noqa: ARG002
        return [0.0] * len(chunk_ids)


SLOW_SECONDS = 3


class Slow:
    """A leg that answers after `SLOW_SECONDS`."""

    async def rank(self, query: Query, k: int) -> Ranking:  # noqa: ARG002
        await asyncio.sleep(SLOW_SECONDS)
        return []

    async def score(self, query: Query, chunk_ids: object) -> list[float]:  # noqa: ARG002
        await asyncio.sleep(SLOW_SECONDS)
        return []


def with_legs(graph: Services, **legs: Leg) -> Services:
    hybrid = find_hybrid(graph)
    return replace(graph, retriever=replace(hybrid, legs={**hybrid.legs, **legs}))


def find_hybrid(graph: Services) -> Hybrid:
    """The retriever that searches one text."""
    retriever = graph.retriever
    hybrid = retriever.retriever if isinstance(retriever, FusedVariants) else retriever
    assert isinstance(hybrid, Hybrid)
    return hybrid


def retrieve_late(graph: Services, **options: object) -> httpx2.Response:
    """Retrieves after a warm-up of the lexical leg, so that only the dense leg is late."""
    late_options = {"timeout_ms": 500 * SLOW_SECONDS, "top_k": 2, **options}
    warm, late = retrieve(with_legs(graph, dense=Slow()), {"timeout_ms": 30_000, "strategies": ["bm25"]}, late_options)
    assert warm.status_code == 200
    return late


def assert_ranked(hits: Sequence[Mapping[str, Any]]) -> None:
    assert [hit["rank"] for hit in hits] == [1, 2]
    assert all("keys" in hit["text"].lower() for hit in hits)


def test_out_of_time_what_was_ranked_is_an_answer_that_says_it_is_not_all(graph: Services) -> None:
    late = retrieve_late(graph)
    body = late.json()
    assert (late.status_code, body["partial"], body["next_cursor"]) == (200, True, None)
    assert "dense" in body["degraded"]
    assert_ranked(body["results"])


def test_out_of_time_what_was_ranked_comes_with_the_problem_if_asked_for(graph: Services) -> None:
    late = retrieve_late(graph, on_timeout="error")
    body = late.json()
    assert (late.status_code, late.headers["content-type"]) == (504, "application/problem+json")
    assert (body["error"]["code"], body["retryable"]) == ("stage_timeout", True)
    assert "dense" in body["degraded"]
    assert body["failed_stage"] in body["degraded"]
    assert_ranked(body["partial_results"])


def test_out_of_time_with_nothing_there_is_nothing_to_come(graph: Services) -> None:
    (late,) = retrieve(with_legs(graph, dense=Slow(), bm25=Slow()), {"timeout_ms": 100})
    assert (late.status_code, late.json()["partial_results"]) == (504, [])
    assert late.json()["failed_stage"] in late.json()["degraded"]


def test_a_late_leg_alone_is_left_out_and_the_rest_is_an_answer(graph: Services) -> None:
    impatient = with_legs(graph, dense=Slow())
    hurried = replace(impatient, retriever=replace(find_hybrid(impatient), timeouts={"dense": 0.05}))
    (response,) = retrieve(hurried, {})
    assert response.status_code == 200
    assert response.json()["partial"] is True
    assert "dense" in response.json()["degraded"]
    assert len(response.json()["results"]) > 1
