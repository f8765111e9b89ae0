"""A cluster of three nodes that loses one amid a job: the job completes, as if it had not been disturbed."""

import subprocess
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from uuid import uuid4

import psycopg
import pytest
from trees import assert_same, read_tree, violations

from benchmarks.tcp_servers import run_over_tcp
from benchmarks.three_nodes import ThreeNodes, three_nodes
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.wiring.ingestion import build_inline_runner, build_sync

pytestmark = [pytest.mark.chaos, pytest.mark.ray, pytest.mark.postgres, pytest.mark.timeout(600)]

SETTINGS = (
    "embedding.type=python",
    "embedding.object=slow_embedder:Slow",
    "embedding.arguments.seconds=0.01",
    "ingestion.group=8",
    "store.patience_s=60",
)
STORED = "select count(*) from rag.documents where status = 'completed'"
JOB_TIMEOUT = 240.0
"""Seconds in which a job completes, even on a busy machine."""


@pytest.fixture(scope="module")
def store(short_folder: Path) -> Iterator[Postgres]:
    with run_over_tcp(short_folder / f"tcp-{uuid4().hex[:8]}") as dsn:
        yield Postgres.open(dsn)


@pytest.fixture
def nodes(short_folder: Path, store: Postgres) -> Iterator[ThreeNodes]:
    folder = short_folder / f"ray-{uuid4().hex[:6]}"
    folder.mkdir()
    with three_nodes(folder, {"RAG_STORE__URL": store.dsn, "RAG_HOME": str(folder / "rag")}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[str]:
    """The URI of the corpus, which every node can read."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Unlogged, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Unlogged(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


def submit(nodes: ThreeNodes, *command: str) -> "subprocess.Popen[str]":
    """`ray job submit` of a module of this project."""
    return nodes.run(
        "ray", "job", "submit", "--", "python", "-m", *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def test_a_sync_completes_although_a_node_is_killed_amid_it(nodes: ThreeNodes, store: Postgres, shared: str) -> None:
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    job = submit(nodes, "jobs.ingest", shared, "--runner", "ray", "--yes", *settings)
    wait_for_documents(50, job, store)
    nodes.workers[0].kill()
    output, _ = job.communicate(timeout=JOB_TIMEOUT)
    assert job.returncode == 0, output
    assert violations(store) == []
    undisturbed = load_settings(overrides=SETTINGS, environment={})
    build_sync(undisturbed, store, [shared], "undisturbed").run(build_inline_runner(undisturbed))
    assert_same(read_tree(store), read_tree(store, "undisturbed"))


def wait_for_documents(count: int, job: "subprocess.Popen[str]", store: Postgres) -> None:
    with psycopg.connect(store.dsn, autocommit=True) as connection:
        while job.poll() is None:
            if (row := connection.execute(STORED).fetchone()) and row[0] >= count:
                return
            time.sleep(0.05)
    assert job.stdout
    pytest.fail(f"the job ended before it had stored {count} documents: {job.stdout.read()}")
