"""The `rag` command from its arguments to its exit code, with the hashing embedder."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

import click
import psycopg
import pytest
import typer.main
from commands import Rag, rag_in_process
from hosts import RAG, with_interrupts
from psycopg.conninfo import make_conninfo
from trees import HASHING, violations, write

from rag_cli.app import app
from rag_core.settings_schema import file_schema
from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.types import DEFAULT_TENANT

pytestmark = pytest.mark.postgres

NOBODY_LISTENS = "postgresql://127.0.0.1:1/rag"
TREE = {
    "keys.md": "# Rotating the keys\n\nThe keys are rotated every ninety days by the operator on duty.\n",
    "gates.md": "# Gates\n\nThe sluice gates are opened at spring tide.\n",
    "empty.txt": "",
}


class Terminal(StringIO):
    """Standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def environment(store: Postgres, tmp_path: Path) -> dict[str, str]:
    settings = dict(setting.split("=") for setting in HASHING)
    names = {f"RAG_{key.upper().replace('.', '__')}": value for key, value in settings.items()}
    return {**names, "RAG_STORE__URL": store.dsn, "RAG_HOME": str(tmp_path / "home"), "COLUMNS": "200"}


@pytest.fixture
def rag(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rag:
    """A function that runs the command in this process."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return rag_in_process(capfd)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", TREE)


def test_an_ingest_reports_what_it_did(rag: Rag, docs: Path) -> None:
    ran = rag("ingest", docs, "--json")
    report = ran.json
    assert ran.code == 0
    assert report["collection"] == "default"
    assert report["documents"] == {
        "listed": 3,
        "added": 3,
        "changed": 0,
        "deleted": 0,
        "same": 0,
        "completed": 2,
        "failed": 0,
        "skipped": 1,
        "quarantined": 0,
    }
    assert report["chunks"] == {"stored": 2, "embedded": 2, "reused": 0, "deleted": 0}
    assert set(report["seconds"]) == {"total", "list", "read_parse_split", "embed", "publish", "index", "start"}
    assert set(report["rate"]) == {"documents_per_second", "chunks_per_second"}
    assert report["failures"] == []
    assert [(row["uri"].rpartition("/")[2], row["reason"]) for row in report["skipped"]] == [("empty.txt", "empty")]
    assert report["job_id"]
    assert "3 documents listed: 3 added" in ran.err


def test_an_ingest_for_people_says_the_same_in_words(rag: Rag, docs: Path) -> None:
    ran = rag("ingest", docs)
    assert ran.code == 0
    assert "default is up to date" in ran.out
    assert "3 listed, 3 added, 0 changed, 0 deleted, 0 same" in ran.out
    assert "skipped: empty (1): empty.txt" in ran.out
    assert [line for line in ran.err.splitlines() if line.startswith("in this process: ")]
    assert rag("ingest", docs, "-q").err == ""


def test_a_failed_document_is_listed_and_the_exit_code_is_1(rag: Rag, docs: Path) -> None:
    write(docs, {"long.txt": "word " * 100})
    ran = rag("ingest", docs, "--json", "--set", "limits.text_mb=0.0002")
    assert ran.code == 1
    assert ran.json["documents"]["failed"] == 1
    (failure,) = ran.json["failures"]
    assert failure == {
        "uri": (docs / "long.txt").as_uri(),
        "stage": "parse",
        "reason": "too large: 0.0 MB of text, limit 0.0002 MB",
        "retryable": False,
    }


def test_a_dry_run_prints_the_plan_and_stores_nothing(rag: Rag, docs: Path) -> None:
    ran = rag("ingest", docs, "--dry-run", "--json")
    size = sum(len(text) for text in TREE.values())
    assert ran.code == 0
    assert ran.json == {
        "dry_run": True,
        "collection": "default",
        "documents": {"listed": 3, "added": 3, "changed": 0, "deleted": 0, "same": 0},
        "bytes": size,
    }
    assert "3 listed, 3 added" in rag("ingest", docs, "--dry-run").out
    assert rag("collections", "list", "--json").json == []


@pytest.mark.slow
def test_deleting_a_large_share_requires_a_yes(rag: Rag, docs: Path) -> None:
    write(docs, {"a.md": "# A\n\nOne.\n", "b.md": "# B\n\nTwo.\n"})
    rag("ingest", docs)
    for name in ("a.md", "b.md", "keys.md"):
        (docs / name).unlink()
    ran = rag("ingest", docs, "--json")
    assert ran.code == 2
    assert ran.json["error"]["type"] == "ConfirmationError"
    assert "3 of the 5 stored documents" in ran.json["error"]["message"]
    assert rag("ingest", docs, "--no-prune", "--json").json["documents"]["deleted"] == 0
    assert rag("ingest", docs, "--yes", "--json").json["documents"]["deleted"] == 3


@pytest.mark.slow
def test_a_search_prints_a_retrieval(rag: Rag, docs: Path) -> None:
    rag("ingest", docs)
    ran = rag("search", "how are keys rotated?", "-k", 1, "--explain", "--json")
    retrieval = ran.json
    assert ran.code == 0
    assert set(retrieval) >= {
        *("object", "query", "standalone_query", "results", "profile", "partial", "degraded", "timings_ms"),
        "next_cursor",
    }
    assert (retrieval["object"], retrieval["query"]) == ("retrieval", "how are keys rotated?")
    assert retrieval["profile"] == {"name": "default", "selected_by": "default"}
    assert (retrieval["partial"], retrieval["degraded"]) == (False, [])
    assert set(retrieval["timings_ms"]) >= {"embed", "dense", "bm25", "fuse", "fetch", "total"}
    assert {row["stage"]: row["limit_ms"] for row in retrieval["stages"]}["dense"] is None
    (result,) = retrieval["results"]
    assert (result["rank"], result["title"], result["url"]) == (1, "Rotating the keys", (docs / "keys.md").as_uri())
    assert result["text"] == TREE["keys.md"].strip()[result["start"] : result["end"]]
    assert result["retrievers"] == ["dense", "bm25"]
    assert {step: place["rank"] for step, place in result["explain"].items()} == {"dense": 1, "bm25": 1, "fusion": 1}
    assert result["explain"]["fusion"]["score"] == pytest.approx(result["score"], abs=1e-6)
    assert [result["text"][start:end] for start, end in result["highlights"]] == ["keys", "keys", "are", "rotated"]


@pytest.mark.slow
def test_a_search_for_people_shows_title_place_and_passage(rag: Rag, docs: Path) -> None:
    rag("ingest", docs)
    ran = rag("search", "how are keys rotated?", "-k", 1)
    assert "1. Rotating the keys" in ran.out
    assert (docs / "keys.md").as_uri() in ran.out
    assert "every ninety days" in ran.out


@pytest.mark.slow
def test_a_search_compares_two_profiles(rag: Rag, docs: Path, tmp_path: Path) -> None:
    rag("ingest", docs)
    config = tmp_path / "my.yaml"
    config.write_text("profiles: {plain: {retrieval: {type: dense}}}")
    arguments = ("search", "how are keys rotated?", "-k", 1, "--compare", "plain", "--config", config)
    compared = rag(*arguments, "--json").json
    assert compared["profiles"] == ["default", "plain"]
    assert [(move["title"], move["ranks"]) for move in compared["moves"]] == [("Rotating the keys", [1, 1])]
    assert [retrieval["profile"]["name"] for retrieval in compared["retrievals"]] == ["default", "plain"]
    assert "1 in both (0 higher in plain, 0 lower)" in rag(*arguments).out


def test_why_names_the_step_that_lost_a_document(rag: Rag, docs: Path) -> None:
    rag("ingest", docs)
    explanation = rag("why", "how are keys rotated?", docs / "gates.md", "-k", 1, "--json").json
    assert explanation["verdict"] == {
        "step": "k",
        "reason": "fusion ranks it 2, and k is 1",
        "remedies": ["-k 2"],
    }
    assert (explanation["legs"][0]["leg"], explanation["legs"][0]["handed_on"]) == ("dense", True)
    skipped = rag("why", "how are keys rotated?", docs / "empty.txt")
    assert (skipped.code, "Lost at ingestion: its status is skipped" in skipped.out) == (0, True)
    assert "Found: it is hit 1 of the 10 requested" in rag("why", "how are keys rotated?", docs / "keys.md").out


def test_a_filter_keeps_what_passes(rag: Rag, docs: Path) -> None:
    rag("ingest", docs)
    ran = rag("search", "keys", "--json", "--filter", '{"key": "title", "type": "eq", "value": "Gates"}')
    assert [result["title"] for result in ran.json["results"]] == ["Gates"]


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ("{", "--filter must be JSON, got '{'"),
        ('{"key": "a", "type": "like", "value": "b"}', "a filter's type must be one of eq, ne"),
        ("null", "--filter must be an object with `type`, got null"),
        ("[]", "a filter must be an object with `type`, got []"),
    ],
)
def test_a_bad_filter_ends_with_2(rag: Rag, docs: Path, filter: str, message: str) -> None:
    rag("ingest", docs)
    ran = rag("search", "keys", "--json", "--filter", filter)
    assert ran.code == 2
    assert ran.json["error"]["type"] == "FilterError"
    assert message in ran.json["error"]["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("search", "keys", "--collection", "nowhere"),
        ("documents", "list", "--collection", "nowhere"),
        ("documents", "show", "file:///nowhere"),
        ("documents", "text", "file:///nowhere"),
        ("documents", "delete", "file:///nowhere", "--yes"),
        ("collections", "drop", "nowhere", "--yes"),
        ("sources", "drop", "file:///nowhere", "--yes"),
        ("jobs", "show", "00000000"),
    ],
)
def test_what_does_not_exist_ends_with_2_and_one_line(rag: Rag, arguments: tuple[str, ...]) -> None:
    ran = rag(*arguments, "--json")
    assert ran.code == 2
    assert ran.json["error"]["type"] == "NotFoundError"
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert "no collection " in ran.err or "there is no " in ran.err or " has no " in ran.err


def test_documents_are_listed_shown_and_printed(rag: Rag, docs: Path) -> None:
    rag("ingest", docs)
    rows = rag("documents", "list", "--json").json
    assert [(row["uri"].rpartition("/")[2], row["status"], row["chunks"]) for row in rows] == [
        ("empty.txt", "skipped", 0),
        ("gates.md", "completed", 1),
        ("keys.md", "completed", 1),
    ]
    assert [row["title"] for row in rag("documents", "list", "--status", "skipped", "--json").json] == [""]
    assert len(rag("documents", "list", "--after", rows[0]["uri"], "--limit", 1, "--json").json) == 1
    uri = rows[2]["uri"]
    document = rag("documents", "show", uri, "--json").json
    assert (document["title"], len(document["chunks"]), document["language"]) == ("Rotating the keys", 1, "en")
    text = rag("documents", "text", uri, "--json").json["text"]
    (chunk,) = document["chunks"]
    assert text[chunk["start"] : chunk["end"]] == chunk["text"]
    assert rag("documents", "text", uri).out.strip() == text.strip()
    assert "Rotating the keys" in rag("documents", "show", uri).out
    assert "keys.md" in rag("documents", "list").out


def test_a_document_in_an_uncertain_encoding_is_listed_with_its_flag(rag: Rag, docs: Path) -> None:
    (docs / "meeting.txt").write_bytes("Sastanak će se održati sutra.".encode("cp1250"))
    rag("ingest", docs)
    flags = [row["metadata"].get("flags") for row in rag("documents", "list", "--json").json]
    assert flags == [None, None, None, ["encoding-uncertain"]]
    assert "encoding-uncertain" in rag("documents", "list").out


def test_deleted_documents_are_gone_with_all_their_rows_until_the_next_sync(
    rag: Rag, docs: Path, store: Postgres
) -> None:
    rag("ingest", docs)
    uris = [(docs / name).as_uri() for name in ("keys.md", "empty.txt")]
    ran = rag("documents", "delete", *uris, uris[0], "--yes", "--json")
    assert (ran.code, ran.json) == (0, {"deleted": uris, "chunks": 1})
    assert [row["uri"] for row in rag("documents", "list", "--json").json] == [(docs / "gates.md").as_uri()]
    assert [row["title"] for row in rag("search", "keys", "--json").json["results"]] == ["Gates"]
    assert violations(store) == []
    assert rag("ingest", docs, "--json").json["documents"]["added"] == 2
    ran = rag("documents", "delete", uris[0], "--yes")
    assert "deleted 1 documents with 1 chunks; the next `rag ingest` adds them again" in ran.out


def test_deleting_requires_a_yes_and_existing_documents(rag: Rag, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rag("ingest", docs)
    uri = (docs / "keys.md").as_uri()
    question = "Delete 1 documents of default with 1 chunks?"
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    ran = rag("documents", "delete", uri)
    assert (ran.code, ran.out.strip()) == (2, "")
    assert ran.err == f"{question} [y/N]:error: {question} Pass --yes to confirm.\n"
    ran = rag("documents", "delete", uri, "file:///nowhere", "--yes", "--json")
    assert (ran.code, ran.json["error"]["type"]) == (2, "NotFoundError")
    assert len(rag("documents", "list", "--json").json) == 3


def test_an_incomplete_list_says_so(rag: Rag, docs: Path) -> None:
    rag("ingest", docs)
    first = rag("documents", "list", "--limit", 2, "--json")
    assert (len(first.json), first.err) == (2, f"there are more; pass --after {first.json[-1]['uri']} to show them\n")
    second = rag("documents", "list", "--limit", 2, "--after", first.json[-1]["uri"], "--json")
    assert (len(second.json), second.err) == (1, "")
    rag("ingest", docs)
    assert rag("jobs", "list", "--limit", 1).err == "there are more; pass --limit 2 to show them\n"
    assert rag("jobs", "list", "--limit", 2).err == ""
    assert rag("documents", "list", "--status", "skiped").code == 2


@pytest.mark.parametrize(
    "command",
    [("documents", "delete", "{keys}"), ("sources", "drop", "{docs}"), ("collections", "drop", "default")],
    ids=lambda command: " ".join(command[:2]),
)
def test_if_nobody_can_confirm_nothing_is_deleted(
    rag: Rag, docs: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    rag("ingest", docs)
    named = [argument.format(keys=(docs / "keys.md").as_uri(), docs=docs.as_uri()) for argument in command]
    monkeypatch.setattr(sys, "stdin", StringIO("y\n"))
    ran = rag(*named)
    assert (ran.code, ran.out) == (2, "")
    assert "Pass --yes to confirm" in ran.err
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    ran = rag(*named, "--json")
    assert (ran.code, ran.json["error"]["type"]) == (2, "ConfirmationError")
    assert len(rag("documents", "list", "--json").json) == 3


def test_nothing_is_deleted_while_a_job_is_at_work(rag: Rag, docs: Path, store: Postgres) -> None:
    rag("ingest", docs)
    uri = (docs / "keys.md").as_uri()
    with store.connect() as connection:
        catalog = Catalog(connection, DEFAULT_TENANT)
        Ledger(connection, DEFAULT_TENANT).claim(catalog.collection("default").id, [catalog.sources()[0].id])
        ran = rag("documents", "delete", uri, "--yes", "--json")
    assert (ran.code, ran.json["error"]["type"]) == (3, "BusyError")
    assert rag("documents", "show", uri).code == 0


def test_collections_and_sources_are_listed_and_dropped(rag: Rag, docs: Path, store: Postgres) -> None:
    rag("ingest", docs, "--collection", "handbook")
    (collection,) = rag("collections", "list", "--json").json
    assert collection == {
        "name": "handbook",
        "model": "hashing",
        "dimension": 64,
        "sources": 1,
        "documents": 2,
        "chunks": 2,
    }
    (source,) = rag("sources", "list", "--json").json
    assert (source["uri"], source["collection"], source["documents"]) == (docs.as_uri(), "handbook", 3)
    assert source["listed_at"]
    ran = rag("sources", "drop", docs.as_uri(), "--collection", "handbook", "--yes", "--json")
    assert (ran.code, ran.json) == (0, {"dropped": docs.as_uri()})
    assert rag("documents", "list", "--collection", "handbook", "--json").json == []
    assert violations(store) == []
    assert rag("collections", "drop", "handbook", "--yes", "--json").json == {"dropped": "handbook"}
    assert rag("collections", "list", "--json").json == []
    assert "no collections yet" in rag("collections", "list").err


def test_jobs_are_listed_and_shown_by_the_beginning_of_their_id(rag: Rag, docs: Path) -> None:
    first = rag("ingest", docs, "--json").json["job_id"]
    second = rag("ingest", docs, "--json").json["job_id"]
    rows = rag("jobs", "list", "--json").json
    assert [row["id"] for row in rows] == [second, first]
    assert {row["status"] for row in rows} == {"completed"}
    assert len(rag("jobs", "list", "--limit", 1, "--json").json) == 1
    job = rag("jobs", "show", first[:13], "--json").json
    assert job["id"] == first
    assert (job["counts"]["completed"], job["counts"]["skipped"]) == (2, 1)
    assert [failure["reason"] for failure in job["failures"]] == ["empty"]
    assert [event["stage"] for event in job["events"]] == [*["stage"] * 3, "publish", *["stage"] * 3, "job"]
    assert job["settings"]["embedding"]["type"] == "hashing"
    assert "store" not in job["settings"]
    assert "completed" in rag("jobs", "show", first).out


@pytest.mark.model
def test_a_missing_gpu_is_refused_before_anything_starts(
    rag: Rag, docs: Path, store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for runner in ("inline", "ray"):
        settings = ("embedding.type=bert", "embedding.model=all-MiniLM-L6-v2", "embedding.device=cuda")
        named = [part for setting in settings for part in ("--set", setting)]
        ran = rag("ingest", docs, "--runner", runner, *named)
        assert ran.code == 3
        assert ran.err.startswith("error: embedding.device is cuda, but PyTorch")
        assert "set embedding.device to cpu" in ran.err
    with store.connect() as connection:
        assert Ledger(connection, DEFAULT_TENANT).jobs() == []


def test_fsck_finds_nothing_in_a_good_store_and_ends_with_1_for_a_broken_one(
    rag: Rag, docs: Path, store: Postgres
) -> None:
    rag("ingest", docs)
    ran = rag("fsck", "--json")
    assert (ran.code, ran.json) == (0, {"ok": True, "violations": []})
    with store.connect("rag_worker") as connection:
        connection.execute("delete from vectors")
    ran = rag("fsck", "--json")
    assert (ran.code, ran.json["ok"], len(ran.json["violations"])) == (1, False, 2)
    assert ran.json["violations"][0]["invariant"].startswith("I2 no chunk without a vector")
    assert "broken I2 no chunk without a vector" in rag("fsck").out


def test_settings_are_checked_shown_and_described(rag: Rag, tmp_path: Path) -> None:
    assert rag("config", "check", "--json").json == {"ok": True}
    values = rag("config", "show", "--json", "--set", "chunking.tokens=30").json
    assert values["chunking.tokens"] == {"value": 30, "origin": "command line"}
    assert values["embedding.type"] == {"value": "hashing", "origin": "environment"}
    assert values["limits.text_mb"] == {"value": 20.0, "origin": "default"}
    assert rag("config", "schema").json == file_schema()
    assert "chunking.tokens" in rag("config", "show").out


def test_a_bad_configuration_ends_with_2(rag: Rag, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("limits: {text_mb: 0}")
    ran = rag("config", "check", file, "--json")
    assert (ran.code, ran.json["error"]["type"]) == (2, "ConfigError")
    assert str(file) in ran.err
    assert rag("config", "check", "--set", "chunking.tokens=600").code == 2
    for wrong, message in (
        ("chunkng: {tokens: 3}", "chunkng"),
        ("prompt: {pack: none}", "prompt.pack must be one of"),
        ("detect: pmc", "detect of profile quick"),
    ):
        file.write_text(f"profiles: {{quick: {{{wrong}}}}}")
        assert (message in rag("config", "check", file).err, rag("config", "check", file).code) == (True, 2)
    assert rag("documents", "list", "--config", tmp_path / "none.yaml").code == 2


def test_a_foreign_configuration_is_imported_and_passes_the_check(rag: Rag, tmp_path: Path) -> None:
    file, out = tmp_path / "pipeline.yaml", tmp_path / "my.yaml"
    file.write_text(
        "profiles: {default: {query: {strategies: [dense, bm25], fusion: rrf, reranking: cross_encoder}}}\n"
        "retriever: {fusion_method: rrf, dense_params: {dimension: 384}}\n"
    )
    ran = rag("config", "import", file, "--out", out)
    assert (ran.code, ran.out) == (0, "")
    assert [line.partition(":")[0] for line in ran.err.splitlines()] == ["note"] * 3
    assert rag("config", "check", out, "--json").json == {"ok": True}
    assert rag("config", "import", file, "--quiet").out == out.read_text()
    imported = rag("config", "import", file, "--json").json
    assert (list(imported["settings"]), len(imported["notices"])) == (["retrieval", "profiles"], 3)
    assert "exists already" in rag("config", "import", file, "--out", out).err
    file.write_text("retriver: {}")
    ran = rag("config", "import", file, "--json")
    assert (ran.code, ran.json["error"]["type"]) == (2, "ConfigError")
    assert "did you mean retriever?" in ran.err
    assert rag("config", "import", tmp_path / "none.yaml").code == 2


@pytest.mark.parametrize("setting", ["chunking.tokns=100", "chunking.tokens", "chunkin.tokens=1", "chunking=1"])
def test_a_typo_in_a_setting_is_one_line_without_a_traceback(rag: Rag, docs: Path, setting: str) -> None:
    ran = rag("ingest", docs, "--set", setting)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert setting.partition("=")[0].partition(".")[0] in ran.err


def test_a_tenant_sees_its_own_and_may_be_named_by_digits(rag: Rag, docs: Path) -> None:
    rag("ingest", docs, "--tenant", "20250101")
    assert [row["name"] for row in rag("collections", "list", "--tenant", "20250101", "--json").json] == ["default"]
    assert rag("collections", "list", "--json").json == []
    assert rag("config", "show", "--tenant", "Short", "--json").code == 2


def test_a_missing_location_ends_with_2(rag: Rag, tmp_path: Path) -> None:
    ran = rag("ingest", tmp_path / "nowhere", "--json")
    assert (ran.code, ran.json["error"]["type"]) == (2, "SourceError")
    assert rag("ingest").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("documents", "list"),
        ("collections", "list"),
        ("sources", "list"),
        ("jobs", "list"),
        ("fsck",),
        ("search", "keys"),
        ("ingest", "."),
        ("store", "status"),
    ],
)
def test_a_store_that_does_not_answer_ends_with_3(rag: Rag, arguments: tuple[str, ...]) -> None:
    ran = rag(*arguments, "--store", NOBODY_LISTENS, "--json")
    assert (ran.code, ran.json["error"]["type"]) == (3, "StoreError")
    assert "host=127.0.0.1 port=1" in ran.err
    assert "Traceback" not in ran.err


def test_the_doctor_finds_what_exists_and_ends_with_3_for_what_is_missing(rag: Rag) -> None:
    ran = rag("doctor", "--json")
    states = {finding["name"]: finding["state"] for finding in ran.json["findings"]}
    assert (ran.code, ran.json["ok"]) == (0, True)
    assert (states["python"], states["ray"], states["model"], states["settings"]) == ("ok", "ok", "ok", "ok")
    assert states["store"] in ("ok", "note")
    ran = rag("doctor", "--store", NOBODY_LISTENS, "--json")
    assert (ran.code, ran.json["ok"]) == (3, False)
    assert {finding["name"] for finding in ran.json["findings"] if finding["state"] == "missing"} == {"store"}


def test_looking_at_a_database_leaves_it_as_it_is(rag: Rag, store: Postgres) -> None:
    name = f"empty_{uuid4().hex}"
    with psycopg.connect(store.dsn, autocommit=True) as connection:
        connection.execute(f"create database {name} template template0")
    empty = make_conninfo(store.dsn, dbname=name)
    assert rag("store", "status", "--store", empty, "--json").json["running"] is True
    findings = {finding["name"]: finding for finding in rag("doctor", "--store", empty, "--json").json["findings"]}
    assert findings["store"]["state"] == "note"
    assert "schema 0 of" in findings["store"]["detail"]
    with psycopg.connect(empty) as connection:
        assert connection.execute("select to_regnamespace('rag')").fetchone() == (None,)


def test_the_state_of_the_store_is_reported_without_its_password(rag: Rag, store: Postgres) -> None:
    status = rag("store", "status", "--store", f"{store.dsn} password=secret", "--json")
    assert status.code == 0
    assert status.json["running"] is True
    assert "secret" not in status.out
    status = rag("store", "status", "--store", "embedded", "--json")
    assert (status.json["store"], status.json["running"]) == ("embedded", False)
    assert rag("store", "stop", "--store", "embedded", "--json").json == {"stopped": False}
    refused = rag("store", "stop")
    assert (refused.code, "rag can only stop the embedded server" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("collections", "list", "--tenant", ""), "tenant"),
        (("collections", "list", "--store", ""), "store.url"),
        (("ingest", ""), "a source must be a path or a URI, got ''"),
        (("ingest", ".", "--runner", "inline", "--gpus", "1"), "cannot be used with --runner inline"),
    ],
)
def test_what_would_mean_something_else_is_refused(rag: Rag, arguments: tuple[str, ...], message: str) -> None:
    ran = rag(*arguments)
    assert (ran.code, "Traceback" in ran.err) == (2, False)
    assert message in ran.err


@pytest.mark.parametrize("arguments", [("search", "caf\udce9", "--json"), ("documents", "show", "file:///caf\udce9")])
def test_what_must_be_text_and_is_not_is_refused(rag: Rag, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    rag("ingest", str(write(tmp_path / "docs", TREE)))
    ran = rag(*arguments)
    assert (ran.code, "Traceback" in ran.err) == (2, False)
    assert "must be UTF-8 text" in ran.err


def test_settings_are_shown_without_the_stores_password(rag: Rag) -> None:
    ran = rag("config", "show", "--store", "postgresql://me:secret@host/rag")
    assert ran.code == 0
    assert "host=host" in ran.out
    assert "secret" not in ran.out


def test_a_search_reports_which_leg_it_went_without(rag: Rag, tmp_path: Path) -> None:
    rag("ingest", str(write(tmp_path / "docs", TREE)))
    late = ("--set", "retrieval.timeouts_ms.bm25=0.001")
    assert "left out bm25: timeout after" in rag("search", "keys", *late).err
    assert rag("search", "keys", *late, "-q").err == ""


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    inner = getattr(command, "commands", {})
    for name, subcommand in inner.items():
        yield from commands(subcommand, (*path, name))
    if not inner:
        yield path


COMMANDS = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_in_its_help(rag: Rag, path: tuple[str, ...]) -> None:
    ran = rag(*path, "--help")
    assert ran.code == 0
    examples = [line.strip() for line in ran.out.splitlines() if line.strip().startswith("Example: rag ")]
    assert [line.split()[1 : 2 + len(path)] for line in examples] == [["rag", *path]]


def test_there_are_as_many_commands_as_are_promised() -> None:
    names = {" ".join(path) for path in COMMANDS}
    assert names >= {
        *("ingest", "search", "fsck", "doctor", "documents list", "documents show", "documents text", "jobs list"),
        *("jobs show", "collections list", "collections drop", "sources list", "sources drop", "store status"),
        *("store stop", "config check", "config show", "config schema"),
    }


@pytest.mark.slow
def test_the_job_is_a_module_that_can_be_submitted() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "jobs.ingest", "--help"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0
    assert "Usage: python -m rag_cli ingest [OPTIONS]" in process.stdout
    assert process.stderr == ""


SLOW = """
import time
from pathlib import Path
from rag_core.models.encoders.hashing import hashing_space
from rag_core.models.encoders.tokens import WordTokenizer

class Slow:
    space, tokenizer = hashing_space(64, 512), WordTokenizer()

    def __init__(self, began):
        self.began = Path(began)

    def embed(self, texts):
        self.began.touch()
        time.sleep(60)
"""


@pytest.mark.slow
def test_an_interrupted_ingest_ends_with_130_and_its_job_is_cancelled(
    environment: dict[str, str], docs: Path, tmp_path: Path, store: Postgres
) -> None:
    began = tmp_path / "began"
    write(tmp_path, {"slow_embedder.py": SLOW})
    settings = (
        "embedding.type=python",
        "embedding.object=slow_embedder:Slow",
        f"embedding.arguments={{began: {began}}}",
    )
    command = [*RAG, "ingest", str(docs), "--json"]
    command += [part for setting in settings for part in ("--set", setting)]
    paths = {**os.environ, **environment, "PYTHONPATH": str(tmp_path)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(with_interrupts(command), env=paths, **pipes) as process:
        await_file(began, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
    with store.connect() as connection:
        ledger = Ledger(connection, DEFAULT_TENANT)
        (job,) = ledger.jobs()
        counts = ledger.progress(job["id"])
    assert (job["status"], job["reason"]) == ("cancelled", "interrupted")
    assert counts["cancelled"] == counts["added"] > 0
    assert violations(store) == []


def await_file(path: Path, process: "subprocess.Popen[str]") -> None:
    deadline = monotonic() + 30
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert monotonic() < deadline
        sleep(0.05)
