"""Answers that a gateway stores, and the feedback on them, in a real store."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import gateways
import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import rag_in_process
from documents import ROOT, Reader
from drafts import TENANT
from fakes.answering import ScriptedGenerator, ScriptedRetriever, passage
from fakes.replies import stored_reply
from fakes.serving import NOWHERE, scripted_graph, serve_graph
from targets import superuser
from trees import hashing_settings, ingest, write

from rag_core.errors import DatasetError
from rag_core.evaluation.dataset import read_dataset
from rag_core.knowledge_base import KnowledgeBase
from rag_core.storage.postgres import Postgres
from rag_core.storage.replies import RatedReply, Replies
from rag_core.storage.retention import delete_old_rows
from rag_core.types import DEFAULT_TENANT
from serve.authentication.caller import Caller
from serve.replies import ReplyLog
from serve.services import Services

pytestmark = pytest.mark.postgres

HITS = [passage(1, "Keys are replaced every 45 days.", title="Keys").hit, passage(2, "Locks open at noon.").hit]
PIECES = ["Keys are replaced every ", "45 days [1]. "]
ME = Caller(tenant=DEFAULT_TENANT)
QUESTION = {"question": "How often?"}
CHAT = {"model": "default", "messages": [{"role": "user", "content": "How often?"}]}


def build_graph(store: Postgres) -> Services:
    return scripted_graph(ScriptedRetriever(hits=HITS), ScriptedGenerator(answers=[PIECES] * 9), postgres=store)


def post(store: Postgres, *requests: tuple[str, Mapping[str, Any]], who: Caller = ME) -> list[httpx2.Response]:
    async def send(client: httpx2.AsyncClient) -> list[httpx2.Response]:
        return [await client.post(path, json=dict(body)) for path, body in requests]

    return gateways.run_with_gateway(build_graph(store), send, who)


def ask_and_rate(
    store: Postgres, *bodies: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> list[httpx2.Response]:
    """Asks one question, and sends each of the bodies as feedback on its answer."""

    async def send(client: httpx2.AsyncClient) -> list[httpx2.Response]:
        id = (await client.post("/v1/answer", json=QUESTION)).json()["id"]
        return [
            await client.post("/v1/feedback", json={"answer_id": id, **body}, headers=dict(headers or {}))
            for body in bodies
        ]

    return gateways.run_with_gateway(build_graph(store), send, ME)


def read_replies(store: Postgres, tenant: str = DEFAULT_TENANT) -> list[RatedReply]:
    with store.connect() as connection:
        return list(Replies(connection, tenant).read())


def test_an_answer_is_stored_under_the_id_that_the_client_received(store: Postgres) -> None:
    (answer,) = post(store, ("/v1/answer", QUESTION))
    (reply,) = read_replies(store)
    assert (reply.id, reply.question, reply.standalone) == (answer.json()["id"], "How often?", "How often?")
    assert (reply.profile, reply.pipeline_version) == ("default", answer.json()["pipeline_version"])
    assert reply.chunk_ids == tuple(hit.chunk.id for hit in HITS)
    assert reply.cited_ids == (HITS[0].chunk.id,)
    assert (reply.verdict, reply.finish, reply.confidence, reply.rating) == ("supported", "stop", None, None)


def test_streams_and_chat_completions_are_stored_like_answers(store: Postgres) -> None:
    streamed, chat, chat_stream = post(
        store,
        ("/v1/answer", {**QUESTION, "stream": True}),
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions", {**CHAT, "stream": True}),
    )
    ids = {reply.id for reply in read_replies(store)}
    assert len(ids) == 3
    assert chat.json()["id"] in ids
    assert sum(id in streamed.text + chat_stream.text for id in ids) == 2


def test_no_answer_is_stored_if_the_settings_forbid_it(store: Postgres) -> None:
    graph = build_graph(store)
    telemetry = graph.settings.telemetry.model_copy(update={"replies": False})
    silent = replace(graph, settings=graph.settings.model_copy(update={"telemetry": telemetry}))
    gateways.run_with_gateway(silent, lambda client: client.post("/v1/answer", json=QUESTION))
    assert read_replies(store) == []


def test_an_answer_does_not_need_the_store_of_replies(caplog: pytest.LogCaptureFixture) -> None:
    graph = replace(build_graph(Postgres("host=/nowhere-else")), replies=ReplyLog(NOWHERE))
    response = gateways.run_with_gateway(graph, lambda client: client.post("/v1/answer", json=QUESTION))
    assert response.status_code == 200
    assert "answers not stored (1): cannot reach the store" in caplog.text


def test_feedback_belongs_to_an_answer(store: Postgres) -> None:
    first, second = ask_and_rate(
        store,
        {"rating": -1, "comment": "outdated", "signals": ["copied"]},
        {"rating": 1, "stars": 4, "corrected_answer": "Every 30 days.", "signals": ["opened_source", "copied"]},
    )
    assert (first.status_code, first.json().keys()) == (201, {"id"})
    assert first.json() != second.json()
    (reply,) = read_replies(store)
    assert (reply.rating, reply.stars, reply.corrected_answer) == (1, 4, "Every 30 days.")
    assert (reply.comments, reply.signals) == (("outdated",), ("copied", "opened_source"))


def test_feedback_on_an_unknown_answer_is_not_found(store: Postgres) -> None:
    (response,) = post(store, ("/v1/feedback", {"answer_id": "ans_0", "rating": 1}))
    assert response.status_code == 404
    assert "ans_0" in response.json()["detail"]


def test_another_tenant_does_not_find_the_answer(store: Postgres) -> None:
    (answer,) = post(store, ("/v1/answer", QUESTION))
    body = {"answer_id": answer.json()["id"], "rating": 1}
    (response,) = post(store, ("/v1/feedback", body), who=Caller(tenant=TENANT))
    assert response.status_code == 404
    assert read_replies(store, TENANT) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"rating": 2},
        {"rating": True},
        {"stars": 0},
        {"signals": ["stared"]},
        {"comment": "x" * 4_001},
        {"thumb": 1},
    ],
)
def test_feedback_that_breaks_a_rule_is_refused(store: Postgres, body: dict[str, Any]) -> None:
    (response,) = ask_and_rate(store, body)
    assert response.status_code == 422


def test_a_repeated_key_returns_the_first_feedback(store: Postgres) -> None:
    key = {"Idempotency-Key": '"once"'}
    first, again, other = ask_and_rate(store, {"rating": 1}, {"rating": 1}, {"rating": -1}, headers=key)
    assert (first.status_code, "idempotency-replayed" in first.headers) == (201, False)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert other.status_code == 422


def test_old_replies_are_deleted_with_their_feedback(store: Postgres) -> None:
    ask_and_rate(store, {"rating": 1})
    post(store, ("/v1/answer", QUESTION))
    with superuser(store) as connection:
        connection.execute(
            "update replies set created_at = now() - %s where id in (select answer_id from feedback)",
            [timedelta(days=31)],
        )
    (change,) = delete_old_rows(store, DEFAULT_TENANT, {"replies": 30})
    assert (change.action, change.subject) == ("removed", "1 replies")
    assert delete_old_rows(store, DEFAULT_TENANT, {"replies": 30}) == []
    with superuser(store) as connection:
        assert connection.execute("select count(*) from feedback").fetchone() == (0,)
    assert len(read_replies(store)) == 1


def test_feedback_is_given_and_exported_from_the_command_line(
    store: Postgres, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (answer,) = post(store, ("/v1/answer", QUESTION))
    rag, place = rag_in_process(capfd), ("--store", store.dsn, "--json")
    ran = rag("feedback", answer.json()["id"], "--thumbs", "down", "--comment", "outdated", *place)
    assert (ran.code, ran.json.keys()) == (0, {"id"})
    assert rag("feedback", "--thumbs", "up", "ans_0", *place).code == 2
    exported = rag("feedback", "export", "--out", tmp_path / "usage", *place)
    assert exported.json == {"answers": 1, "days": 1, "folder": str(tmp_path / "usage")}
    (reply,) = pq.read_table(tmp_path / "usage" / "replies.parquet").to_pylist()
    assert (reply["rating"], reply["comments"], reply["cost"]) == (-1, ["outdated"], 0)
    (day,) = pq.read_table(tmp_path / "usage" / "days.parquet").to_pylist()
    assert (day["answers"], day["thumbs_down"], day["cited"]) == (1, 1, 1)


def test_feedback_is_given_to_a_server(store: Postgres, capfd: pytest.CaptureFixture[str]) -> None:
    with serve_graph(build_graph(store)) as address:
        answer = httpx2.post(f"{address}/v1/answer", json=QUESTION).json()
        rag = rag_in_process(capfd)
        assert rag("feedback", answer["id"], "--thumbs", "up", "--server", address, "--json").code == 0
        assert rag("feedback", "ans_0", "--thumbs", "up", "--server", address).code == 2
    assert [reply.rating for reply in read_replies(store)] == [1]


def test_asked_questions_become_a_dataset_without_a_test_split(
    store: Postgres, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = write(tmp_path / "files", {"keys.md": "# Keys\n\nKeys are replaced every 45 days."})
    ingest(store, files)
    with KnowledgeBase(hashing_settings(f"store.url={store.dsn}")) as knowledge:
        (hit,) = knowledge.search("keys", 1)
    graph = scripted_graph(ScriptedRetriever(hits=[hit]), ScriptedGenerator(answers=[PIECES]), postgres=store)

    async def rate(client: httpx2.AsyncClient) -> None:
        id = (await client.post("/v1/answer", json=QUESTION)).json()["id"]
        await client.post("/v1/feedback", json={"answer_id": id, "stars": 5, "corrected_answer": "Every 45 days."})

    gateways.run_with_gateway(graph, rate, ME)
    rag, out = rag_in_process(capfd), tmp_path / "asked"
    ran = rag("dataset", "make", "--from", "replies", "--out", out, "--store", store.dsn, "--json")
    counts = {"documents": 1, "questions": 1, "graded": 1, "references": 1}
    assert ran.json == {"from": "replies", **counts, "folder": str(out)}
    (question,) = read_dataset(out, "train").questions
    assert (question.text, question.grades) == ("How often?", {str(hit.chunk.document_id): 1})
    (answer,) = map(json.loads, (out / "answers.jsonl").read_text().splitlines())
    assert (answer["answers"], answer["origin"]["answer_id"]) == (["Every 45 days."], question.id)
    with pytest.raises(DatasetError):
        read_dataset(out, "test")
    assert rag("dataset", "make", "--from", "replies", "--out", out, "--store", store.dsn).code == 2


def test_live_answers_are_compared_with_a_run(
    store: Postgres, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    post(store, *[("/v1/answer", QUESTION)] * 3)
    rag, place = rag_in_process(capfd), ("--store", store.dsn, "--json")
    run, gauges = tmp_path / "run", tmp_path / "rag.prom"
    assert rag("feedback", "drift", run, *place).code == 2
    run.mkdir()
    answers = {"finish": ["stop", "abstained"], "confidence": pa.array([None, None], pa.float64())}
    pq.write_table(pa.table(answers), run / "answers.parquet")
    (row,) = rag("feedback", "drift", run, "--metrics", gauges, *place).json
    assert (row["measure"], row["live_answers"], row["difference"]) == ("abstention", 3, -0.5)
    assert 'rag_live_score_drift{measure="abstention",profile="default"} -0.5' in gauges.read_text()


def test_a_question_to_a_server_shows_the_id_to_rate(store: Postgres, capfd: pytest.CaptureFixture[str]) -> None:
    rag = rag_in_process(capfd)
    with serve_graph(build_graph(store)) as address:
        answer = rag("ask", "How often?", "--server", address, "--json").json
        hint = rag("ask", "How often?", "--server", address).err
    first, second = read_replies(store)
    assert answer["id"] == first.id
    assert f"rag feedback {second.id} --thumbs up|down --server {address}" in hint


@pytest.mark.slow
def test_the_page_on_feedback_can_be_followed(
    store: Postgres, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ingest(store, write(tmp_path / "files", {"keys.md": "# Keys\n\nKeys are replaced every 45 days."}))
    with store.connect() as connection:
        Replies(connection, DEFAULT_TENANT).add([stored_reply("ans_1"), stored_reply("ans_2")], timeout=60)
    (tmp_path / "runs" / "nightly").mkdir(parents=True)
    answers = pa.table({"finish": ["stop", "abstained"], "confidence": [0.5, 0.9]})
    pq.write_table(answers, tmp_path / "runs" / "nightly" / "answers.parquet")
    environment = {"RAG_STORE__URL": store.dsn}
    Reader(tmp_path, environment, rag=rag_in_process(capfd)).follow((ROOT / "docs/how-to/feedback.md").read_text())
    (day,) = pq.read_table(tmp_path / "usage" / "days.parquet").to_pylist()
    assert day["answers"] == 2
    assert json.loads((tmp_path / "asked" / "queries_train.jsonl").read_text())["origin"]["times"] == 2
    assert 'measure="abstention"' in (tmp_path / "rag.prom").read_text()
