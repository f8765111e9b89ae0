"""The contract of both doors, over one store: the same hits, the same errors."""

from collections.abc import Iterator

import pytest
from adapter_doors import MUSEUM, Doors, open_doors

from benchmarks.free_port import find_free_port
from integrations.doors import Door, HttpDoor, Search
from rag_core.errors import AuthenticationError, NotFoundError, UnavailableError, UsageError
from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

QUESTION = "When are the signing keys replaced?"
RULES = {"key": "kind", "type": "eq", "value": "rule"}


@pytest.fixture(scope="module")
def doors(module_store: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with open_doors(module_store, tmp_path_factory.mktemp("doors")) as doors:
        yield doors


@pytest.fixture(params=["python", "http"])
def door(request: pytest.FixtureRequest, doors: Doors) -> Door:
    return doors.open(request.param)


def test_both_doors_return_the_same_hits(doors: Doors) -> None:
    for search in (Search(question=QUESTION), Search(question=QUESTION, k=2, filters=RULES)):
        hits = doors.open("python").search(search)
        assert hits == doors.open("http").search(search)
        assert len(hits) == min(search.k, 3)


def test_a_filter_leaves_out_other_documents(door: Door) -> None:
    hits = door.search(Search(question=QUESTION, filters=RULES))
    assert {hit.metadata["kind"] for hit in hits} == {"rule"}
    assert [hit.rank for hit in hits] == [1, 2]
    assert door.search(Search(question=QUESTION, filters={**RULES, "value": "none"})) == []


@pytest.mark.parametrize("kind", ["python", "http"])
def test_a_tenant_sees_only_its_own_documents(doors: Doors, kind: str) -> None:
    assert [hit.title for hit in doors.open(kind, MUSEUM).search(Search(question=QUESTION))] == ["Vitrines"]


@pytest.mark.parametrize(
    ("search", "error", "message"),
    [
        (Search(question=" "), UsageError, "question|query"),
        (Search(question=QUESTION, collection="nowhere"), NotFoundError, "nowhere"),
        (Search(question=QUESTION, filters={"key": "kind", "type": "like", "value": "r"}), UsageError, "like"),
    ],
)
def test_a_wrong_search_is_the_same_error(door: Door, search: Search, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        door.search(search)


def test_a_gateway_refuses_a_wrong_key(doors: Doors) -> None:
    with pytest.raises(AuthenticationError, match="RAG_API_KEY"):
        HttpDoor(doors.url, f"{doors.key}x").search(Search(question=QUESTION))


def test_a_gateway_that_is_down_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match="cannot reach the server at http://"):
        HttpDoor(f"http://127.0.0.1:{find_free_port()}", attempts=1).search(Search(question=QUESTION))
