"""Conversations, answers and idempotency keys belong to the user who opened or sent them."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import uuid4

import gateways
import httpx2
import pytest
from fakes.serving import RecordingRetriever, storing_graph
from targets import superuser

from rag_core.scopes import ROLES
from rag_core.storage.postgres import Postgres
from rag_core.types import DEFAULT_TENANT
from serve.authentication.caller import Caller

pytestmark = pytest.mark.postgres

T = TypeVar("T")


def caller(user: str, *groups: str, role: str = "writer") -> Caller:
    return Caller(tenant=DEFAULT_TENANT, user=user, groups=groups, scopes=ROLES[role])


ADA, BOB, ROOT = caller("ada"), caller("bob"), caller("root", role="admin")
ASKED = {"question": "Who keeps the keys?", "conversation_id": "mine"}


def work(store: Postgres, who: Caller, do: Callable[[httpx2.AsyncClient], Coroutine[Any, Any, T]]) -> T:
    return gateways.run_with_gateway(storing_graph(store), do, who)


def send(store: Postgres, who: Caller, method: str, path: str, body: object = None, key: str = "") -> httpx2.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return work(store, who, lambda client: client.request(method, path, json=body, headers=headers))


def ask(store: Postgres, who: Caller, conversation: str = "mine", **options: Any) -> dict[str, Any]:
    response = send(store, who, "POST", "/v1/answer", {**ASKED, "conversation_id": conversation}, **options)
    assert response.status_code == 200
    return dict(response.json())


def list_ids(store: Postgres, who: Caller, query: str = "") -> list[str]:
    return [row["id"] for row in send(store, who, "GET", f"/v1/conversations{query}").json()["data"]]


def count_messages(store: Postgres, who: Caller, conversation: str = "mine") -> int:
    """The number of messages, or -1 if there is no such conversation."""
    response = send(store, who, "GET", f"/v1/conversations/{conversation}/messages")
    return -1 if response.status_code == 404 else len(response.json()["data"])


def invite(store: Postgres, *users: str) -> str:
    """The reference of Ada's conversation, which these users participate in."""
    body = send(store, ADA, "PUT", "/v1/conversations/mine/participants", {"users": users}).json()
    assert body["users"] == list(users)
    return str(body["id"])


def test_another_user_of_the_tenant_finds_no_conversation(store: Postgres) -> None:
    ask(store, ADA)
    assert (list_ids(store, ADA), list_ids(store, BOB)) == (["mine"], [])
    assert (count_messages(store, ADA), count_messages(store, BOB)) == (2, -1)
    assert send(store, BOB, "DELETE", "/v1/conversations/mine").status_code == 404
    assert send(store, BOB, "PUT", "/v1/conversations/mine/participants", {"users": ["bob"]}).status_code == 404


def test_the_same_conversation_id_of_another_user_begins_another_conversation(store: Postgres) -> None:
    ask(store, ADA)
    retriever = RecordingRetriever(hits=[])
    body = {"query": "And the locks?", "conversation_id": "mine"}
    for who in (ADA, BOB):
        gateways.run_with_gateway(
            storing_graph(store, retriever), lambda client: client.post("/v1/retrieve", json=body), who
        )
    assert [bool(query.variants) for query in retriever.queries] == [True, False]
    ask(store, BOB)
    assert (count_messages(store, ADA), count_messages(store, BOB)) == (2, 2)


def test_a_conversation_outlasts_a_change_of_groups_without_the_messages_of_a_lost_one(store: Postgres) -> None:
    ask(store, caller("ada", "staff"))
    ask(store, caller("ada", "staff", "board"))
    counts = [count_messages(store, caller("ada", *groups)) for groups in (("board", "staff", "x"), ("staff",), ())]
    assert counts == [4, 2, 0]
    assert list_ids(store, ADA) == ["mine"]


def test_participants_read_and_continue_a_conversation_until_they_are_removed(store: Postgres) -> None:
    ask(store, ADA)
    shared = invite(store, "bob", "eve")
    assert list_ids(store, BOB) == [shared]
    assert count_messages(store, BOB, shared) == 2
    ask(store, BOB, shared)
    assert count_messages(store, ADA) == 4
    assert send(store, BOB, "DELETE", f"/v1/conversations/{shared}").status_code == 404
    assert send(store, BOB, "PUT", f"/v1/conversations/{shared}/participants", {"users": []}).status_code == 404
    invite(store, "eve")
    assert (list_ids(store, BOB), count_messages(store, BOB, shared)) == ([], -1)
    ask(store, BOB, shared)
    assert (count_messages(store, ADA), count_messages(store, BOB, shared)) == (4, 2)


def test_a_participant_needs_the_groups_of_a_message(store: Postgres) -> None:
    ask(store, ADA)
    ask(store, caller("ada", "staff"))
    shared = invite(store, "bob")
    assert (count_messages(store, BOB, shared), count_messages(store, caller("bob", "staff"), shared)) == (2, 4)


def test_an_administrator_lists_reads_and_erases_the_conversations_of_a_user(store: Postgres) -> None:
    ask(store, caller("ada", "staff"))
    assert send(store, BOB, "GET", "/v1/conversations?user=ada").status_code == 403
    assert send(store, ADA, "GET", "/v1/conversations?user=ada").status_code == 200
    (reference,) = list_ids(store, ROOT, "?user=ada")
    assert (list_ids(store, ROOT), count_messages(store, ROOT, reference)) == ([], 2)
    assert count_messages(store, BOB, reference) == -1
    assert send(store, ROOT, "DELETE", f"/v1/conversations/{reference}").status_code == 204
    assert list_ids(store, ADA) == []


def test_a_conversation_of_an_earlier_version_is_named_by_its_reference(store: Postgres) -> None:
    id = uuid4()  # of the tenant, the session and the groups
    with superuser(store) as connection:
        connection.execute(
            "insert into conversations (tenant, id, session_id, groups, user_id, title)"
            " values (%s, %s, 'mine', '{}', 'ada', '')",
            [DEFAULT_TENANT, id],
        )
    assert list_ids(store, ADA) == [f"conversation:{id}"]
    ask(store, ADA, f"conversation:{id}")
    assert (count_messages(store, ADA), count_messages(store, ADA, f"conversation:{id}")) == (-1, 2)
    assert send(store, ADA, "DELETE", f"/v1/conversations/conversation:{id}").status_code == 204


def test_an_administrator_of_another_tenant_finds_nothing(store: Postgres) -> None:
    ask(store, ADA)
    (reference,) = list_ids(store, ROOT, "?user=ada")
    stranger = Caller(tenant="another", user="ada")
    assert list_ids(store, stranger, "?user=ada") == []
    assert count_messages(store, stranger, reference) == -1


def test_feedback_is_for_the_answers_of_the_caller(store: Postgres) -> None:
    rating = {"answer_id": ask(store, ADA)["id"], "rating": 1}
    statuses = [send(store, who, "POST", "/v1/feedback", rating).status_code for who in (BOB, ROOT, ADA)]
    assert statuses == [404, 404, 201]


def test_an_erasure_takes_the_answers_of_participants(store: Postgres) -> None:
    ask(store, ADA)
    rating = {"answer_id": ask(store, BOB, invite(store, "bob"))["id"], "rating": 1}
    assert send(store, ADA, "DELETE", "/v1/conversations/mine").status_code == 204
    assert send(store, BOB, "POST", "/v1/feedback", rating).status_code == 404


def test_users_can_choose_the_same_idempotency_key(store: Postgres) -> None:
    answers = {who.user: ask(store, who, key="one")["id"] for who in (ADA, BOB)}
    assert answers["ada"] != answers["bob"]
    ingested = {"documents": [{"id": "a", "text": "Ada's text"}]}, {"documents": [{"id": "b", "text": "Bob's text"}]}
    for who, job in zip((ADA, BOB), ingested, strict=True):
        rating = {"answer_id": answers[who.user], "rating": 1}
        for path, body in (("/v1/ingest", job), ("/v1/feedback", rating)):
            first, again = (send(store, who, "POST", path, body, "one") for _ in range(2))
            assert first.status_code in (201, 202)
            assert "idempotency-replayed" not in first.headers
            assert again.headers["idempotency-replayed"] == "true"


def test_a_cursor_belongs_to_its_user(store: Postgres) -> None:
    for number in range(2):
        ask(store, ADA, f"c{number}")
        ask(store, BOB, f"c{number}")
    cursor = send(store, ADA, "GET", "/v1/conversations?limit=1").json()["next_cursor"]
    path = f"/v1/conversations?limit=1&cursor={cursor}"
    assert [send(store, who, "GET", path).status_code for who in (ADA, BOB)] == [200, 422]
