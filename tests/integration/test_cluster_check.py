"""A cluster of two nodes, of which one lacks the program and a folder: what is checked, shipped and refused."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from bare_python import create_bare_python
from blocking_nodes import Nodes
from commands import Ran
from documents import ROOT
from trees import HASHING, assert_same, hashing_settings, read_tree, violations, write

from benchmarks.tcp_servers import run_over_tcp
from rag_core.storage.postgres import Postgres
from rag_core.wiring.ingestion import build_inline_runner, build_sync

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(900)]

PASSWORD, LEAKED_PASSWORD = "marker-4c1f-of-the-store", "marker-77aa-of-a-command"
FILES = {f"{n:02}.md": f"# Gate {n}\n\nGate {n} is four metres wide and opens at {n % 12}.\n" for n in range(20)}
RAY = str(Path(sys.executable).with_name("ray"))
SETTINGS = [option for setting in (*HASHING, "ingestion.group=8") for option in ("--set", setting)]
HIDE = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
"""Runs a command that does not see the files of the folder which is its first argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BareCluster:
    """The nodes, the folder that both see, the one that only the head sees, and the store."""

    nodes: Nodes
    shared: Path
    hidden: Path
    home: Path
    store: Postgres

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a node: the store's password is known only to it."""
        return {"RAG_HOME": str(self.home), "RAG_DSN": self.store.dsn, "RAG_STORE__URL": "env:RAG_DSN"}

    def run(self, *command: str, **variables: str) -> Ran:
        process = subprocess.run(
            command,
            cwd=self.home,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
                **self.environment,
                **{"RAY_ADDRESS": self.nodes.address, "RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(ROOT)},
                **variables,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return Ran(process.returncode, process.stdout, process.stderr)

    def rag(self, *arguments: str) -> Ran:
        return self.run(sys.executable, "-m", "rag_cli", *arguments)

    def submit(self, *arguments: str) -> Ran:
        """Submits `python -m jobs.ingest` with a working directory, and waits for its end."""
        address = f"http://127.0.0.1:{self.nodes.dashboard_port}"
        entrypoint = [sys.executable, "-m", "jobs.ingest", *arguments]
        return self.run(RAY, "job", "submit", "--address", address, "--working-dir", "job", "--", *entrypoint)

    def check(self, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        """The exit code and the findings of `rag cluster check`."""
        ran = self.rag("cluster", "check", "--json", *arguments)
        assert ran.out, ran.err
        return ran.code, json.loads(ran.out)["findings"]


@pytest.fixture(scope="module")
def cluster(short_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    python = create_bare_python(folder / "bare")
    with run_over_tcp(short_folder / "tcp-check", PASSWORD) as dsn:
        cluster = BareCluster(
            nodes=Nodes(short_folder / "ray"),
            shared=write(folder / "shared", FILES),
            hidden=write(folder / "hidden", FILES),
            home=write(folder / "home", {"job/my.yaml": "embedding: {type: hashing, dimension: 64}\n"}),
            store=Postgres.open(dsn),
        )
        can_hide = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0
        head = {**cluster.environment, "PYTHONPATH": str(ROOT)}
        wrapper = [*HIDE, str(cluster.hidden)] if can_hide else []
        with (
            cluster.nodes.run_head(head, "--num-cpus=1"),
            cluster.nodes.run_worker(python, cluster.environment, "--num-cpus=1", wrapper=wrapper),
        ):
            yield cluster


def select_check(findings: list[dict[str, Any]], check: str) -> list[dict[str, Any]]:
    return [finding for finding in findings if finding["check"] == check]


def check_states(findings: list[dict[str, Any]], check: str) -> list[str]:
    return sorted(finding["state"] for finding in select_check(findings, check))


def test_every_node_is_checked(cluster: BareCluster) -> None:
    code, findings = cluster.check(str(cluster.shared))
    assert code == 0, findings
    assert check_states(findings, "program") == ["ok", "warning"]
    (lacking,) = [finding for finding in select_check(findings, "program") if finding["state"] == "warning"]
    assert lacking["detail"] == "rag-on-ray is not installed"
    for check in ("versions", "store", "clock", f"source file://{cluster.shared}", "metrics port"):
        assert check_states(findings, check) == ["ok", "ok"], select_check(findings, check)
    assert check_states(findings, "environment") == ["ok"]
    assert check_states(findings, "dashboard") == ["ok"]
    assert PASSWORD not in json.dumps(findings)


def test_a_job_ships_the_program_and_ingests_the_shared_folder_on_both_nodes(cluster: BareCluster) -> None:
    ran = cluster.rag("ingest", str(cluster.shared), "--runner", "ray", "--json", *SETTINGS)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["documents"]["completed"] == len(FILES)
    settings = hashing_settings()
    build_sync(settings, cluster.store, [str(cluster.shared)], "inline").run(build_inline_runner(settings))
    assert_same(read_tree(cluster.store), read_tree(cluster.store, "inline"))
    assert violations(cluster.store) == []


def test_a_submitted_job_keeps_its_folder_and_gets_the_program_and_its_password_is_nowhere(
    cluster: BareCluster,
) -> None:
    """A password that a command does contain is refused. Ray has stored it then, so the search finds it."""
    url = f"postgresql://rag:{LEAKED_PASSWORD}@127.0.0.1:1/rag"
    refused = cluster.submit(str(cluster.shared), "--config", "my.yaml", "--store", url)
    assert refused.code == 1
    assert "must not hold a secret in its command line or env_vars, got one in store.url" in refused.out
    ran = cluster.submit(str(cluster.shared), "--config", "my.yaml", "--collection", "submitted", "--runner", "ray")
    assert ran.code == 0, ran.out + ran.err
    assert set(read_tree(cluster.store, "submitted").statuses().values()) == {"completed"}
    texts = {str(file): file.read_bytes() for file in cluster.nodes.folder.rglob("*") if file.is_file()}
    assert [name for name, text in texts.items() if PASSWORD.encode() in text] == []
    assert [name for name, text in texts.items() if LEAKED_PASSWORD.encode() in text]
    jobs = cluster.run(RAY, "job", "list", "--address", f"http://127.0.0.1:{cluster.nodes.dashboard_port}")
    assert LEAKED_PASSWORD in jobs.out
    assert PASSWORD not in jobs.out + jobs.err + ran.out + ran.err
    with cluster.store.connect("rag_worker") as connection:
        rows = connection.execute("select jobs::text from jobs").fetchall()
    assert rows
    assert PASSWORD not in str(rows)


def test_a_folder_that_a_node_lacks_is_refused_with_its_name(cluster: BareCluster) -> None:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot create a mount namespace, in which a node lacks a folder")
    code, findings = cluster.check(str(cluster.hidden))
    assert code == 3
    (lacking,) = [finding for finding in findings if finding["state"] == "failed"]
    assert lacking["check"] == f"source file://{cluster.hidden}"
    assert lacking["detail"] == "0 files, not 20"
    ran = cluster.rag("ingest", str(cluster.hidden), "--runner", "ray", "--collection", "hidden", *SETTINGS)
    assert ran.code == 2
    assert f"source file://{cluster.hidden} is a local folder that differs on 1 of 2 nodes" in ran.err
    assert lacking["node"] in ran.err
    assert read_tree(cluster.store, "hidden").documents == {}


def test_nodes_without_the_requirements_or_without_an_answer_are_named(cluster: BareCluster, tmp_path: Path) -> None:
    python = create_bare_python(tmp_path / "bare", "pgvector", "xlrd")
    with cluster.nodes.run_worker(python, cluster.environment, "--num-cpus=1") as process:
        ran = cluster.rag("ingest", str(cluster.shared), "--runner", "ray", "--collection", "bare", *SETTINGS)
        assert ran.code == 3
        assert "lacks pgvector, xlrd" in ran.err
        code, findings = cluster.check()
        assert code == 3
        assert check_states(findings, "program") == ["failed", "ok", "warning"]
        raylets = [child for child in psutil.Process(process).children(recursive=True) if child.name() == "raylet"]
        for raylet in raylets:
            raylet.send_signal(signal.SIGSTOP)
        try:
            code, findings = cluster.check("--timeout", "15")
        finally:
            for raylet in raylets:
                with suppress(psutil.NoSuchProcess):
                    raylet.send_signal(signal.SIGCONT)
    assert code == 3
    (silent,) = [finding for finding in findings if finding["state"] == "failed"]
    assert silent["check"] == "program"
    assert "no answer within 15 s" in silent["detail"] or "lost" in silent["detail"]
    assert check_states(findings, "store") == ["ok", "ok"]
