"""`rag ingest --server`, against a gateway that listens and a worker that works."""

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from commands import Rag, Ran, rag_in_process
from drafts import TENANT
from fakes.serving import serve_graph
from gateways import build_services
from hosts import RAG, with_interrupts
from trees import hashing_settings, read_tree, violations, write
from workers import run_worker

from rag_core.storage.postgres import Postgres
from serve.services import Services

ALLOWED = 'ingestion.allowed_locations=["s3://bucket"]'
pytestmark = [pytest.mark.postgres, pytest.mark.slow]

INGEST = [*RAG, "ingest"]
FILES = {"keys.md": "# Keys\n\nReplaced every 45 days.\n", "gates.html": "<html><h1>Gates</h1><p>Open.</p></html>"}


def graph(store: Postgres) -> Services:
    return build_services(
        hashing_settings(f"tenant={TENANT}", f"store.url={store.dsn}", "answering.budget=none", ALLOWED)
    )


@contextmanager
def worker(store: Postgres) -> Iterator[None]:
    base_settings = hashing_settings(f"tenant={TENANT}", ALLOWED)
    with run_worker(
        base_settings.model_copy(update={"store": base_settings.store.model_copy(update={"url": store.dsn})})
    ):
        yield


@pytest.fixture
def url(store: Postgres) -> Iterator[str]:
    with serve_graph(graph(store)) as address:
        yield address


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", FILES)


@pytest.fixture
def rag(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rag:
    """A function that runs the command as on a machine without the store."""
    monkeypatch.setenv("RAG_STORE__URL", "host=/nowhere")
    return rag_in_process(capfd)


def push(rag: Rag, url: str, *arguments: str, code: int = 0) -> Ran:
    ran = rag("ingest", *arguments, "--server", url)
    assert ran.code == code, ran.err
    assert "Traceback" not in ran.err
    return ran


def report(rag: Rag, url: str, *arguments: str, code: int = 0) -> Any:
    return json.loads(push(rag, url, *arguments, "--json", code=code).out)


@pytest.mark.slow
def test_a_folder_is_pushed_and_is_stored_when_the_command_ends(
    rag: Rag, store: Postgres, url: str, folder: Path
) -> None:
    with worker(store):
        first = report(rag, url, str(folder), "--collection", "docs", "--meta", "team=locks")
        again = report(rag, url, str(folder), "--collection", "docs", "--meta", "team=locks")
        (folder / "keys.md").write_text("# Keys\n\nReplaced daily.\n")
        changed = report(rag, url, str(folder), "--collection", "docs", "--meta", "team=locks")
    assert first["documents"].items() >= {"listed": 2, "added": 2, "completed": 2, "failed": 0}.items()
    assert (first["collection"], first["failures"], len(first["job_ids"])) == ("docs", [], 1)
    assert again["documents"].items() >= {"listed": 2, "same": 2, "added": 0}.items()
    assert changed["documents"].items() >= {"listed": 2, "same": 1, "changed": 1}.items()
    documents = read_tree(store, "docs").documents.values()
    assert sorted((document["title"], document["metadata"]["team"]) for document in documents) == [
        ("Gates", "locks"),
        ("Keys", "locks"),
    ]
    assert violations(store) == []


@pytest.mark.slow
def test_what_cannot_be_read_is_reported_and_is_exit_code_1(rag: Rag, store: Postgres, url: str, folder: Path) -> None:
    (folder / "torn.pdf").write_bytes(b"%PDF-1.7 torn")
    (folder / "large.txt").write_bytes(b"x" * 50_000_001)
    (folder / "empty.md").write_text("\n")
    with worker(store):
        outcome = report(rag, url, str(folder), code=1)
    assert outcome["documents"].items() >= {"listed": 5, "completed": 2, "failed": 2, "skipped": 1}.items()
    failures = {failure["uri"]: (failure["stage"], failure["reason"]) for failure in outcome["failures"]}
    large = failures.pop((folder / "large.txt").as_uri())
    assert large == ("read", "too large: 50.0 MB or more, limit 50 MB")
    assert [(uri, stage) for uri, (stage, _) in failures.items()] == [((folder / "torn.pdf").as_uri(), "parse")]


def test_many_files_go_in_batches(store: Postgres, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_cli.push.MAX_BATCH_FILES", 2)
    from rich.console import Console

    from rag_cli.push import Push, PushRequest

    write(tmp_path, {f"{number}.md": f"# {number}" for number in range(5)})
    request = PushRequest(
        sources=[str(tmp_path)], collection="docs", no_prune=True, yes=False, checksum=False, meta=None
    )
    sent = Push(server=url, request=request, profile="")
    sent.send(Console(quiet=True))
    assert list(sent.jobs.values()) == [2, 2, 1]


@pytest.mark.slow
def test_a_uri_that_the_server_can_list_is_sent_as_a_source(
    rag: Rag, store: Postgres, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with worker(store):
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        outcome = report(rag, url, "s3://bucket/docs", code=2)
    assert outcome["error"]["type"] == "SourceError"
    assert outcome["error"]["message"].startswith("s3://bucket/docs cannot be used as a source: ")


def test_a_uri_that_the_server_does_not_allow_is_refused_with_the_rule(rag: Rag, store: Postgres, url: str) -> None:
    outcome = report(rag, url, "memory://nothing/here", code=2)
    assert "the scheme of a location must be one of file, gs, http, https, s3" in outcome["error"]["message"]
    outcome = report(rag, url, "s3://other/docs", code=2)
    assert "must be under one of ingestion.allowed_locations, got 's3://other/docs'" in outcome["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dry-run"], "cannot be used with --server: --dry-run"),
        (["--cpus", "2", "--runner", "inline"], "cannot be used with --server: --runner, --cpus"),
        (["--store", "host=/x", "--set", "a.b=c"], "cannot be used with --server: --set, --store"),
        (["s3://bucket/docs", "--meta", "a=b"], "not to sources of the server: s3://bucket/docs"),
        (["--meta", "nonsense"], "--meta must be KEY=VALUE, got 'nonsense'"),
        (["--profile", "nonsense"], "profile must be one of"),
        (["/nowhere/at/all"], "cannot be used as a source"),
    ],
)
def test_options_without_a_meaning_for_a_server_are_refused_by_name(
    rag: Rag, url: str, folder: Path, arguments: list[str], message: str
) -> None:
    assert message in report(rag, url, str(folder), *arguments, code=2)["error"]["message"]


def test_an_unreachable_server_is_reported_at_once(rag: Rag, folder: Path) -> None:
    outcome = report(rag, "http://127.0.0.1:9", str(folder), code=3)
    assert "cannot reach the server" in outcome["error"]["message"]


def jobs(url: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = httpx2.get(f"{url}/v1/jobs").json()["data"]
    return listed


def wait_for_job(url: str) -> str:
    """Waits for the only job, and returns its id."""
    while not (rows := jobs(url)):
        time.sleep(0.05)
    time.sleep(0.5)  # until the command follows it
    return str(rows[0]["job_id"])


@pytest.mark.slow
def test_an_interrupt_without_a_terminal_leaves_the_job_to_the_server(url: str, folder: Path) -> None:
    pipes = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    command = [*INGEST, str(folder), "--server", url]
    with subprocess.Popen(with_interrupts(command), **pipes) as process:  # type: ignore[call-overload]
        job = wait_for_job(url)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"job {job} continues on the server; to watch it: curl -N {url}/v1/jobs/{job}/events" in message
    assert jobs(url)[0]["status"] == "queued"


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "status"), [(b"y\n", "cancelled"), (b"n\n", "queued")])
def test_who_interrupts_it_on_a_terminal_says_what_becomes_of_the_job(
    url: str, folder: Path, answer: bytes, status: str
) -> None:
    mine, theirs = pty.openpty()
    command = [*INGEST, str(folder), "--server", url]
    with subprocess.Popen(
        with_interrupts(command), stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        wait_for_job(url)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        os.write(mine, answer)
        assert process.wait(timeout=30) == 130
    os.close(mine)
    os.close(theirs)
    assert jobs(url)[0]["status"] == status
