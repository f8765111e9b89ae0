"""A cluster of three nodes that loses one amid a job: the job completes, as if it had not been disturbed."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hosts import RAG
from trees import assert_same, read_tree, violations

from benchmarks.tcp_servers import run_over_tcp
from benchmarks.three_nodes import ThreeNodes, three_nodes
from rag_core.evaluation.dataset import write_dataset
from rag_core.evaluation.question import CorpusDocument, Question
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.wiring.ingestion import build_inline_runner, build_sync

pytestmark = [pytest.mark.chaos, pytest.mark.ray, pytest.mark.postgres, pytest.mark.timeout(900)]

SETTINGS = (
    "embedding.type=python",
    "embedding.object=slow_embedder:Slow",
    "embedding.arguments.seconds=0.01",
    "ingestion.group=8",
    "store.patience_s=60",
    "answering.budget=none",
    "retrieval.timeout_ms=60000",
)
OPTIONS = [part for setting in SETTINGS for part in ("--set", setting)]
STORED = "select count(*) from rag.documents where status = 'completed'"
JOB_TIMEOUT = 400.0
"""Seconds in which a job completes, even on a busy machine."""
QUESTIONS = 240


@pytest.fixture
def store(short_folder: Path) -> Iterator[Postgres]:
    with run_over_tcp(short_folder / f"tcp-{uuid4().hex[:8]}") as dsn:
        yield Postgres.open(dsn)


@pytest.fixture
def nodes(short_folder: Path, store: Postgres) -> Iterator[ThreeNodes]:
    """The nodes see the folders of this machine at the same paths, as they would see those of a shared mount."""
    folder = short_folder / f"ray-{uuid4().hex[:6]}"
    folder.mkdir()
    with three_nodes(folder, {"RAG_STORE__URL": store.dsn, "RAG_HOME": str(folder / "rag")}) as cluster:
        yield cluster


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    corpus = [CorpusDocument(id=f"gate-{n}", title=f"Gate {n}", text=f"Gate {n} opens at {n % 12}.") for n in range(60)]
    questions = [
        Question(id=f"q{n}", text=f"When does gate {n % 60} open, traveller {n}?", grades={f"gate-{n % 60}": 1})
        for n in range(QUESTIONS)
    ]
    write_dataset(tmp_path / "gates", corpus, questions)
    return tmp_path / "gates"


def submit(nodes: ThreeNodes, *command: str) -> "subprocess.Popen[str]":
    """`ray job submit` of a module of this project."""
    return nodes.run(
        "ray", "job", "submit", "--", "python", "-m", *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def wait_and_kill(nodes: ThreeNodes, job: "subprocess.Popen[str]", count: Callable[[], int], wanted: int) -> None:
    """Kills a worker node when the job has done so much. Asserts that the job then succeeds."""
    while (done := count()) < wanted and job.poll() is None:
        time.sleep(0.05)
    nodes.workers[0].kill()
    output, _ = job.communicate(timeout=JOB_TIMEOUT)
    assert done >= wanted, f"the job ended too early: {output}"
    assert job.returncode == 0, output


def test_a_sync_completes_although_a_node_is_killed_amid_it(nodes: ThreeNodes, store: Postgres, folder: Path) -> None:
    with psycopg.connect(store.dsn, autocommit=True) as connection:
        job = submit(nodes, "jobs.ingest", str(folder), "--runner", "ray", "--yes", *OPTIONS)
        wait_and_kill(nodes, job, lambda: (connection.execute(STORED).fetchone() or (0,))[0], 50)
    assert violations(store) == []
    undisturbed = load_settings(overrides=SETTINGS, environment={})
    build_sync(undisturbed, store, [str(folder)], "undisturbed").run(build_inline_runner(undisturbed))
    assert_same(read_tree(store), read_tree(store, "undisturbed"))


def test_an_evaluation_has_the_same_figures_although_a_node_is_killed_amid_it(
    nodes: ThreeNodes, store: Postgres, dataset: Path, tmp_path: Path
) -> None:
    command = [str(dataset), "--answers", *OPTIONS, "--json", "--out"]
    undisturbed = [*RAG, "evaluate", *command, str(tmp_path / "undisturbed"), "--runner", "inline"]
    subprocess.run(undisturbed, env=dict(nodes.environment), check=True, stdout=sys.stderr, timeout=JOB_TIMEOUT)
    job = submit(nodes, "jobs.evaluate", *command, str(tmp_path / "disturbed"), "--runner", "ray")
    journal = tmp_path / "disturbed" / "answers.partial.jsonl"
    wait_and_kill(nodes, job, lambda: journal.read_text().count("\n") if journal.exists() else 0, 20)
    assert violations(store) == []
    first, second = (read_measures(tmp_path / name) for name in ("undisturbed", "disturbed"))
    assert first == second
    assert first["stages"]["final"]["success@5"] > 0.9


def read_measures(run: Path) -> dict[str, Any]:
    """The means of all measures of a run. Times are not among them."""
    report = json.loads((run / "report.json").read_text())
    assert report["answers"]["questions"] == QUESTIONS
    assert report["answers"]["failures"] == report["failures"] == []
    return {
        "answers": {name: measure["mean"] for name, measure in report["answers"]["measures"].items()},
        "stages": {
            stage: {name: measure["mean"] for name, measure in figures["measures"].items()}
            for stage, figures in report["stages"].items()
        },
    }
