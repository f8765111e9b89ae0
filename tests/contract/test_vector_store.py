"""What a vector store promises, whether it is the one in Postgres or the one in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import pytest

from rag_core.contract.vector_store.memory import MemoryVectorStore
from rag_core.contract.vector_store.port import BaseVectorStore, SearchResult, Vector
from rag_core.contract.vector_store.postgres import PostgresVectorStore
from rag_core.errors import FilterError, SpaceError, UsageError, VectorError
from rag_core.storage.postgres import Postgres

T = TypeVar("T")
TENANT = "tenant-under-test"
NAN, INFINITY = float("nan"), float("inf")
PARTS = [
    Vector(
        id="key", values=[1, 0, 0], metadata={"kind": "memo", "year": 2024, "tags": ["metal", "small"], "new": True}
    ),
    Vector(id="lock", values=[1, 1, 0], metadata={"kind": "note", "year": 2025, "new": False}),
    Vector(id="door", values=[0, 0, 2]),
]


class Store(Protocol):
    """The two stores, as these tests need them."""

    def ask(self, question: Callable[[BaseVectorStore], Awaitable[T]]) -> T: ...


class InMemory:
    def __init__(self) -> None:
        self._store = MemoryVectorStore(dimension=3)

    def ask(self, question: Callable[[BaseVectorStore], Awaitable[T]]) -> T:
        return _run(question(self._store))


class InPostgres:
    """A store in Postgres. Each question gets a new object, so only what the database holds is found."""

    def __init__(self, postgres: Postgres, tenant: str = TENANT, name: str = "parts", dimension: int = 3) -> None:
        self._opened = postgres, tenant, name, dimension

    def ask(self, question: Callable[[BaseVectorStore], Awaitable[T]]) -> T:
        async def run_with_store() -> T:
            store = PostgresVectorStore(*self._opened)
            try:
                return await question(store)
            finally:
                await store.close()

        return _run(run_with_store())


def _run(work: Awaitable[T]) -> T:
    async def run() -> T:
        return await work

    return asyncio.run(run())


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def vectors(request: pytest.FixtureRequest) -> Store:
    return InMemory() if request.param == "memory" else InPostgres(request.getfixturevalue("store"))


def add(store: Store, *vectors: Vector) -> list[str]:
    return store.ask(lambda opened: opened.add(vectors))


def search(store: Store, *query: float, top_k: int = 10, filters: Any = None) -> list[SearchResult]:
    return store.ask(lambda opened: opened.search(query, top_k, filters))


def delete(store: Store, *ids: str) -> int:
    return store.ask(lambda opened: opened.delete(ids))


def ids(results: Sequence[SearchResult]) -> list[str]:
    return [result.id for result in results]


def matching_ids(store: Store, filters: Any) -> set[str]:
    return set(ids(search(store, 1, 1, 1, filters=filters)))


def test_the_nearest_come_first_with_their_cosines_and_metadata(vectors: Store) -> None:
    assert add(vectors, *PARTS) == ["key", "lock", "door"]
    best, second, last = search(vectors, 3, 0, 0)
    assert ids([best, second, last]) == ["key", "lock", "door"]
    assert [best.score, second.score, last.score] == pytest.approx([1, 2**-0.5, 0], abs=1e-6)
    assert best.metadata == {"kind": "memo", "year": 2024, "tags": ["metal", "small"], "new": True}


def test_ties_are_in_the_order_of_ids_and_no_more_than_top_k_come(vectors: Store) -> None:
    add(vectors, *(Vector(id=id, values=[1, 2, 3]) for id in "cabd"))
    assert ids(search(vectors, 1, 2, 3, top_k=3)) == ["a", "b", "c"]


def test_scores_are_the_cosines_that_numpy_computes(vectors: Store) -> None:
    rows = np.random.default_rng(7).standard_normal((50, 3)).astype(np.float32)
    query = np.array([0.3, -0.2, 0.9])
    add(vectors, *(Vector(id=f"{n:02}", values=row.tolist()) for n, row in enumerate(rows)))
    cosines = rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)
    results = search(vectors, *query, top_k=50)
    assert [int(result.id) for result in results] == np.argsort(-cosines).tolist()
    assert [result.score for result in results] == pytest.approx(np.sort(cosines)[::-1].tolist(), abs=1e-6)


@pytest.mark.parametrize("length", [1e-320, 1e-30, 1e30, 1e300])
def test_a_vector_of_any_length_has_its_cosines(vectors: Store, length: float) -> None:
    add(vectors, *PARTS, Vector(id="any", values=[length, length, 0]))
    assert [result.score for result in search(vectors, 1, 0, 0, top_k=2)] == pytest.approx([1, 2**-0.5], abs=1e-6)
    assert [result.score for result in search(vectors, length, 0, 0, top_k=2)] == pytest.approx([1, 2**-0.5], abs=1e-6)


def test_what_is_found_can_be_changed_without_changing_what_is_stored(vectors: Store) -> None:
    metadata: dict[str, Any] = {"tags": ["metal"]}
    add(vectors, Vector(id="key", values=[1, 0, 0], metadata=metadata))

    async def change_result(opened: BaseVectorStore) -> list[SearchResult]:
        (result,) = await opened.search([1, 0, 0])
        result.metadata["tags"].append("soft")  # type: ignore[union-attr]
        return await opened.search([1, 0, 0])

    assert vectors.ask(change_result)[0].metadata == metadata


def test_an_empty_store_has_nothing(vectors: Store) -> None:
    assert search(vectors, 1, 0, 0) == []
    assert delete(vectors, "key") == 0
    assert add(vectors) == []


def test_a_vector_without_an_id_is_given_one_of_its_own(vectors: Store) -> None:
    first, second = add(vectors, Vector(values=[1, 0, 0]), Vector(values=[0, 1, 0]))
    assert first != second
    assert ids(search(vectors, 0, 1, 0, top_k=1)) == [second]


def test_a_vector_of_the_same_id_takes_the_place_of_the_former(vectors: Store) -> None:
    add(vectors, *PARTS)
    add(vectors, Vector(id="key", values=[0, 1, 0], metadata={"kind": "report"}))
    assert ids(search(vectors, 0, 1, 0, top_k=1)) == ["key"]
    assert matching_ids(vectors, {"key": "kind", "type": "eq", "value": "memo"}) == set()
    assert matching_ids(vectors, {"key": "kind", "type": "eq", "value": "report"}) == {"key"}
    assert len(search(vectors, 1, 1, 1)) == 3


def test_of_two_with_one_id_added_together_the_last_is_stored(vectors: Store) -> None:
    assert add(vectors, Vector(id="a", values=[1, 0, 0]), Vector(id="a", values=[0, 1, 0])) == ["a", "a"]
    [only] = search(vectors, 0, 1, 0)
    assert only.score == pytest.approx(1)


def test_what_is_deleted_is_counted_and_not_found_again(vectors: Store) -> None:
    add(vectors, *PARTS)
    assert delete(vectors, "key", "none", "door") == 2
    assert ids(search(vectors, 1, 0, 0)) == ["lock"]
    assert matching_ids(vectors, {"key": "kind", "type": "eq", "value": "memo"}) == set()


@pytest.mark.parametrize(
    ("key", "type", "value", "passes"),
    [
        ("kind", "eq", "memo", {"key"}),
        ("kind", "ne", "memo", {"lock", "door"}),
        ("kind", "in", ["memo", "note"], {"key", "lock"}),
        ("kind", "nin", ["memo"], {"lock", "door"}),
        ("tags", "eq", "small", {"key"}),
        ("year", "eq", 2024, {"key"}),
        ("year", "gt", 2024, {"lock"}),
        ("year", "lte", 2024.5, {"key"}),
        ("year", "gt", "2024", set()),
        ("kind", "lt", "n", {"key"}),
        ("new", "eq", True, {"key"}),
        ("page", "eq", 1, set()),
    ],
)
def test_filters_compare_metadata(vectors: Store, key: str, type: str, value: Any, passes: set[str]) -> None:
    add(vectors, *PARTS)
    assert matching_ids(vectors, {"key": key, "type": type, "value": value}) == passes


def test_filters_combine(vectors: Store) -> None:
    add(vectors, *PARTS)
    memo, late = {"key": "kind", "type": "eq", "value": "memo"}, {"key": "year", "type": "gte", "value": 2025}
    assert matching_ids(vectors, {"type": "or", "filters": [memo, late]}) == {"key", "lock"}
    assert matching_ids(vectors, {"type": "and", "filters": [memo, late]}) == set()


def test_a_filter_is_applied_before_the_cut_at_top_k(vectors: Store) -> None:
    add(vectors, *PARTS)
    late = {"key": "year", "type": "gte", "value": 2025}
    assert ids(search(vectors, 1, 0, 0, top_k=1, filters=late)) == ["lock"]


@pytest.mark.parametrize("filters", [{"kind": "memo"}, {"key": "kind", "type": "like", "value": "m"}, {}, "memo"])
def test_a_filter_that_is_not_known_is_refused(vectors: Store, filters: Any) -> None:
    with pytest.raises(FilterError):
        search(vectors, 1, 0, 0, filters=filters)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ([1, 0], "3 dimensions, got 2"),
        ([], "3 dimensions, got 0"),
        ([1, 0, NAN], "finite numbers, got NaN or infinity"),
        ([1, -INFINITY, 0], "finite numbers, got NaN or infinity"),
        ([0, 0, 0], "a length above 0"),
    ],
)
def test_a_vector_that_has_no_cosine_is_refused(vectors: Store, values: list[float], rule: str) -> None:
    with pytest.raises(VectorError, match=rule):
        add(vectors, PARTS[0], Vector(id="bad", values=values))
    with pytest.raises(VectorError, match=rule):
        search(vectors, *values)
    assert search(vectors, 1, 0, 0) == []


@pytest.mark.parametrize(
    "vector",
    [
        Vector(id="", values=[1, 0, 0]),
        Vector(id="a\0b", values=[1, 0, 0]),
        Vector(id="a\ud800b", values=[1, 0, 0]),
        Vector(values=[1, 0, 0], metadata={"kind": "a\ud800b"}),
        Vector(values=[1, 0, 0], metadata={"kind": "a\0b"}),
        Vector(values=[1, 0, 0], metadata={"year": NAN}),
        Vector(values=[1, 0, 0], metadata={"nested": {"a": 1}}),  # type: ignore[dict-item]
    ],
)
def test_what_cannot_be_stored_is_refused(vectors: Store, vector: Vector) -> None:
    with pytest.raises(VectorError, match=r"id must be non-empty Unicode text|metadata must hold Unicode texts"):
        add(vectors, vector)


def test_a_long_text_is_kept_but_not_compared(vectors: Store) -> None:
    text = "word " * 5000
    add(vectors, Vector(id="long", values=[1, 0, 0], metadata={"text": text}))
    assert search(vectors, 1, 0, 0)[0].metadata == {"text": text}
    assert matching_ids(vectors, {"key": "text", "type": "eq", "value": text}) == set()


def test_at_least_one_is_asked_for(vectors: Store) -> None:
    with pytest.raises(UsageError, match="top_k must be >= 1, got 0"):
        search(vectors, 1, 0, 0, top_k=0)


@pytest.mark.postgres
def test_a_tenant_and_a_name_have_vectors_of_their_own(store: Postgres) -> None:
    add(InPostgres(store), *PARTS)
    assert search(InPostgres(store, tenant="another-tenant"), 1, 0, 0) == []
    assert search(InPostgres(store, name="others"), 1, 0, 0) == []
    assert delete(InPostgres(store, tenant="another-tenant"), "key") == 0
    assert len(search(InPostgres(store), 1, 0, 0)) == 3


@pytest.mark.postgres
def test_a_store_is_not_opened_with_another_dimension(store: Postgres) -> None:
    add(InPostgres(store), *PARTS)
    with pytest.raises(SpaceError, match="'parts' holds vectors of 3 dimensions, not 4"):
        search(InPostgres(store, dimension=4), 1, 0, 0, 0)


@pytest.mark.postgres
def test_many_that_write_the_same_at_once_do_not_lock_each_other_out(store: Postgres) -> None:
    async def add_at_once(opened: BaseVectorStore) -> None:
        batches = [[Vector(id=str(n), values=[1, n, writer]) for n in range(20)] for writer in range(4)]
        await asyncio.gather(*(opened.add(batch if n % 2 else batch[::-1]) for n, batch in enumerate(batches)))

    InPostgres(store).ask(add_at_once)
    assert len(search(InPostgres(store), 1, 0, 0, top_k=100)) == 20
