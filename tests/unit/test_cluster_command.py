"""`rag cluster check` as a command: its exit codes and its two forms of output."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Rag, rag_in_process

from jobs.cluster_check import ClusterCheck
from jobs.cluster_findings import ClusterFinding

OK = ClusterFinding(node="10.0.0.2 (worker, abc)", check="clock", state="ok", detail="0.001 s ahead of the store's")
FAILED = ClusterFinding(
    node="10.0.0.3 (worker, def)",
    check="store",
    state="failed",
    detail="cannot reach the store [host=db]",
    remedy="open the way to the store",
)


@pytest.fixture
def rag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rag:
    monkeypatch.setenv("RAY_ADDRESS", "head.internal:6379")
    monkeypatch.setenv("RAG_HOME", str(tmp_path))
    return rag_in_process(capfd)


def script_findings(monkeypatch: pytest.MonkeyPatch, *findings: ClusterFinding) -> None:
    def run(check: ClusterCheck) -> Iterator[ClusterFinding]:
        check.on_step("asking 2 nodes for their versions")
        yield from findings

    monkeypatch.setattr(ClusterCheck, "run", run)


def test_a_failed_check_ends_with_3_and_shows_what_to_do(rag: Rag, monkeypatch: pytest.MonkeyPatch) -> None:
    script_findings(monkeypatch, OK, FAILED)
    ran = rag("cluster", "check")
    assert ran.code == 3
    assert "cannot reach the store [host=db]" in ran.out
    assert "open the way to the store" in ran.out
    assert "asking 2 nodes for their versions" in ran.err
    assert "asking" not in ran.out


def test_json_has_every_finding_and_0_means_that_none_failed(rag: Rag, monkeypatch: pytest.MonkeyPatch) -> None:
    script_findings(monkeypatch, OK)
    ran = rag("cluster", "check", "--json", "--quiet")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out) == {
        "ok": True,
        "findings": [{"node": OK.node, "check": "clock", "state": "ok", "detail": OK.detail, "remedy": ""}],
    }


def test_without_an_address_or_with_a_missing_source_nothing_is_asked(
    rag: Rag, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = rag("cluster", "check", "no-such-folder")
    assert ran.code == 2
    assert "no-such-folder" in ran.err
    monkeypatch.delenv("RAY_ADDRESS")
    ran = rag("cluster", "check")
    assert (ran.code, ran.err.strip()) == (
        2,
        "error: RAY_ADDRESS must name the head of the cluster, such as head.internal:6379; it is not set",
    )
