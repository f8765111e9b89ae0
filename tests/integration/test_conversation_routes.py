"""Conversations that a gateway stores, lists, understands and erases."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import gateways
import httpx2
import pytest
from fakes.answering import passage
from fakes.conversations import converse
from fakes.serving import RecordingRetriever, storing_graph
from targets import superuser

from jobs.script_runner import erase_session
from rag_core.answering.split import hash_conversation
from rag_core.storage import pools
from rag_core.storage.exposures import Exposure, Exposures
from rag_core.storage.memory_sessions import MemorySessions
from rag_core.storage.postgres import Postgres
from rag_core.storage.retention import delete_old_rows
from rag_core.types import DEFAULT_TENANT, Query
from serve.authentication.caller import Caller

pytestmark = pytest.mark.postgres

T = TypeVar("T")
HITS = [passage(1, "Keys are replaced every 45 days.", title="Keys").hit]
ME, STAFF = Caller(tenant=DEFAULT_TENANT), Caller(tenant=DEFAULT_TENANT, groups=("staff",))
MINE = Query(text="who?", session_id="mine")
NOWHERE = Postgres("host=/nowhere")


def work(store: Postgres, do: Callable[[httpx2.AsyncClient], Coroutine[Any, Any, T]], who: Caller = ME) -> T:
    return gateways.run_with_gateway(storing_graph(store), do, who)


def get(store: Postgres, path: str, who: Caller = ME) -> httpx2.Response:
    return work(store, lambda client: client.get(path), who)


def delete(store: Postgres, path: str, who: Caller = ME) -> httpx2.Response:
    return work(store, lambda client: client.delete(path), who)


def answer(store: Postgres, *questions: str, **headers: str) -> list[dict[str, Any]]:
    async def ask(client: httpx2.AsyncClient) -> list[dict[str, Any]]:
        bodies = [{"question": question, "conversation_id": "mine"} for question in questions]
        return [(await client.post("/v1/answer", json=body, headers=headers)).json() for body in bodies]

    return work(store, ask)


def count(store: Postgres, table: str) -> int:
    with superuser(store) as connection:
        return int((connection.execute(f"select count(*) from {table}").fetchone() or (0,))[0])  # noqa: S608


def test_a_conversation_outlasts_the_gateway_that_stored_it(store: Postgres) -> None:
    (first,) = answer(store, "How often?")
    (listed,) = get(store, "/v1/conversations").json()["data"]
    assert {key: listed[key] for key in ("id", "title", "turns")} == {"id": "mine", "title": "How often?", "turns": 1}
    reply, question = get(store, "/v1/conversations/mine/messages").json()["data"]
    assert (question["role"], question["text"], question["citations"]) == ("user", "How often?", [])
    assert (reply["id"], reply["text"], reply["verdict"]) == (
        first["id"],
        first["answer"],
        first["grounding"]["verdict"],
    )
    assert reply["citations"][0]["quote"] == first["citations"][0]["quote"]
    (second,) = answer(store, "And then?")
    assert second["conversation_id"] == "mine"
    assert second["degraded"] == []


def test_messages_and_conversations_come_in_pages(store: Postgres) -> None:
    converse(store, *(replace(MINE, text=f"{number}", session_id=f"c/{number}") for number in range(3)))
    converse(store, *(replace(MINE, text=f"q{number}") for number in range(3)))

    async def read_pages(client: httpx2.AsyncClient, path: str) -> list[list[Any]]:
        pages, cursor = [], ""
        while cursor is not None:
            body = (await client.get(path, params={"limit": 2, "cursor": cursor})).json()
            pages.append([row["id"] if path == "/v1/conversations" else row["text"] for row in body["data"]])
            cursor = body["next_cursor"]
        return pages

    assert work(store, lambda client: read_pages(client, "/v1/conversations")) == [["mine", "c/2"], ["c/1", "c/0"]]
    expected = [["Q2", "q2"], ["Q1", "q1"], ["Q0", "q0"]]
    assert work(store, lambda client: read_pages(client, "/v1/conversations/mine/messages")) == expected
    assert get(store, "/v1/conversations/c%2F1/messages").json()["data"][0]["text"] == "1"
    assert get(store, "/v1/conversations?cursor=abc").status_code == 422


def test_a_conversation_of_others_is_not_there(store: Postgres) -> None:
    converse(store, replace(MINE, groups=("staff",)), replace(MINE, tenant="another"))
    assert get(store, "/v1/conversations").json()["data"] == []
    assert get(store, "/v1/conversations/mine/messages").status_code == 404
    assert delete(store, "/v1/conversations/mine").status_code == 404
    assert len(get(store, "/v1/conversations", STAFF).json()["data"]) == 1


def test_what_is_erased_is_gone_with_all_that_came_of_it(store: Postgres) -> None:
    converse(store, replace(MINE, session_id="other"), replace(MINE, groups=("staff",)))
    (reply,) = answer(store, "How often?")

    async def rate_and_erase(client: httpx2.AsyncClient) -> list[int]:
        rating = {"answer_id": reply["id"], "rating": 1}
        rated = await client.post("/v1/feedback", json=rating)
        erased = [await client.delete("/v1/conversations/mine") for _ in range(2)]
        gone = [await client.post("/v1/feedback", json=rating), await client.get("/v1/conversations/mine/messages")]
        return [response.status_code for response in (rated, *erased, *gone)]

    assert work(store, rate_and_erase) == [201, 204, 404, 404, 404]
    assert [count(store, table) for table in ("replies", "feedback", "conversations", "messages")] == [0, 0, 2, 4]


def test_a_memory_store_with_the_same_session_id_keeps_no_exposures(store: Postgres) -> None:
    exposure = Exposure(
        experiment="one", variant="control", bucket=1, conversation=hash_conversation(ME.tenant, "mine")
    )
    converse(store, MINE)
    with store.connect() as connection:
        MemorySessions(connection, ME.tenant, "postgres").open("mine")
        Exposures(connection, ME.tenant).add({"ans_failed": exposure})
    assert delete(store, "/v1/conversations/mine").status_code == 204
    assert [count(store, table) for table in ("exposures", "conversations")] == [0, 1]


def test_a_search_understands_the_conversation_and_stores_nothing_in_it(store: Postgres) -> None:
    converse(store, replace(MINE, text="Who replaces the keys?"))
    retriever = RecordingRetriever(hits=HITS)

    async def search(client: httpx2.AsyncClient) -> list[dict[str, Any]]:
        names = ({}, {"conversation_id": "mine"}, {"session_id": "mine"})
        return [(await client.post("/v1/retrieve", json={"query": "How often?", **name})).json() for name in names]

    alone, *after = gateways.run_with_gateway(storing_graph(store, retriever), search, ME)
    understood = ["How often?", "Who replaces the keys?"]  # the answer cites nothing, so it is not searched
    assert [[variant.text for variant in query.variants] for query in retriever.queries] == [[], understood, understood]
    assert {body["standalone_query"] for body in (alone, *after)} == {"How often?"}
    assert count(store, "messages") == 2


def test_a_store_that_is_away_costs_the_history_and_not_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "CONNECTION_WAIT", 0.5)
    (reply,) = answer(NOWHERE, "How often?")
    assert (reply["answer"], reply["degraded"]) == ("Every 45 days [1].", ["history", "remember"])


def test_a_request_that_is_sent_again_is_stored_once(store: Postgres) -> None:
    key = {"Idempotency-Key": "one"}
    ids = [reply["id"] for reply in [*answer(store, "How often?", **key), *answer(store, "How often?", **key)]]
    assert ids[0] == ids[1] != answer(store, "How often?", **{"Idempotency-Key": "two"})[0]["id"]
    assert count(store, "messages") == 4


def test_the_same_key_of_another_caller_names_another_answer(store: Postgres) -> None:
    async def ask(client: httpx2.AsyncClient) -> str:
        body, headers = {"question": "How often?", "conversation_id": "mine"}, {"Idempotency-Key": "one"}
        return str((await client.post("/v1/answer", json=body, headers=headers)).json()["id"])

    callers = (ME, STAFF, Caller(tenant=DEFAULT_TENANT, user="ada"), Caller(tenant="another"))
    assert len({work(store, ask, who) for who in callers}) == len(callers)
    assert count(store, "replies") == len(callers)


def test_the_session_of_an_evaluation_is_erased(store: Postgres) -> None:
    converse(store, MINE, replace(MINE, session_id="run-1"))
    for _ in range(2):
        erase_session(store, DEFAULT_TENANT, "run-1")
    assert [row["id"] for row in get(store, "/v1/conversations").json()["data"]] == ["mine"]


def test_a_conversation_ends_some_days_after_its_last_message(store: Postgres) -> None:
    converse(store, MINE, replace(MINE, session_id="old"))
    with superuser(store) as connection:
        connection.execute(
            "update conversations set last_activity_at = now() - interval '8 days' where session_id = 'old'"
        )
    (change,) = delete_old_rows(store, DEFAULT_TENANT, {"conversations": 7})
    assert (change.action, change.subject) == ("removed", "1 conversations")
    assert delete_old_rows(store, DEFAULT_TENANT, {"conversations": 7}) == []
    assert count(store, "messages") == 2
