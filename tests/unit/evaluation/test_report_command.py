"""`rag report` over folders of runs."""

import json
from pathlib import Path

import pytest
from commands import Rag, rag_in_process
from run_folders import write_answers, write_run_folder

GOOD, BAD = [0.9, 0.8] * 30, [0.5, 0.4] * 30


@pytest.fixture
def rag(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Rag:
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "home"))
    return rag_in_process(capfd)


def read_title(folder: Path) -> str:
    return (folder / "report.md").read_text().splitlines()[0]


def test_a_report_is_written_into_the_run(rag: Rag, tmp_path: Path) -> None:
    run = write_run_folder(tmp_path / "a", GOOD)
    assert rag("report", run, "--json").json == [{"report": str(run / "report.html")}]
    assert (run / "report.html").read_text().startswith("<!doctype html>")


def test_the_verdict_is_that_of_the_gate(rag: Rag, tmp_path: Path) -> None:
    base, run = write_run_folder(tmp_path / "a", GOOD), write_run_folder(tmp_path / "b", BAD)
    assert rag("gate", run, "--base", base).code == 1
    assert rag("report", run, "--base", base).code == 0
    assert read_title(run) == "# FAIL: seals with default"
    rag("report", base, "--base", base)
    assert read_title(base) == "# PASS: seals with default"


def test_the_limits_are_those_of_a_gate_file(rag: Rag, tmp_path: Path) -> None:
    base, run = write_run_folder(tmp_path / "a", GOOD), write_run_folder(tmp_path / "b", BAD)
    limits = tmp_path / "gate.yaml"
    limits.write_text("measures: {ndcg@10: {margin: 0.9, set_margin: 0.9}}")
    rag("report", run, "--base", base, "--gate", limits)
    assert read_title(run) == "# PASS: seals with default"


def test_the_promoted_run_is_a_base_and_part_of_the_history(rag: Rag, tmp_path: Path) -> None:
    stages = {"final": {"measures": {"ndcg@10": {"mean": 0.85, "low": 0.8, "high": 0.9}}, "errors": 0}}
    run = write_run_folder(tmp_path / "a", GOOD, stages=stages)
    rag("report", run, "--base", "promoted")
    assert read_title(run) == "# INVALID: seals with default"
    rag("promote", run)
    unfinished = tmp_path / "home" / "runs" / "tmp12"
    unfinished.mkdir()
    (unfinished / "report.json").write_text('{"dataset":')
    rag("report", run, "--base", "promoted")
    assert read_title(run) == "# PASS: seals with default"
    assert "| 0.850 | promoted |" in (run / "report.md").read_text()
    of_other_tenant = write_run_folder(tmp_path / "b", GOOD, stages=stages, tenant="quay")
    rag("report", of_other_tenant)
    assert "## History" not in (of_other_tenant / "report.md").read_text()


def test_files_elsewhere_require_a_run_of_one_dataset(rag: Rag, tmp_path: Path) -> None:
    runs = [write_run_folder(tmp_path / "runs" / name, GOOD, dataset=name) for name in ("seals", "whales")]
    html, markdown = tmp_path / "here.html", tmp_path / "here.md"
    assert rag("report", runs[0], "--html", html, "--md", markdown).code == 0
    assert html.exists()
    assert markdown.exists()
    assert rag("report", runs[0].parent, "--html", html).code == 2
    assert rag("report", runs[0].parent).code == 0
    assert read_title(runs[1]) == "# INVALID: whales with default"


def test_each_dataset_of_a_folder_is_compared_with_its_own_base(rag: Rag, tmp_path: Path) -> None:
    for folder, whales in (("a", GOOD), ("b", BAD)):
        write_run_folder(tmp_path / folder / "seals", GOOD)
        write_run_folder(tmp_path / folder / "whales", whales, dataset="whales")
    limits = tmp_path / "gate.yaml"
    limits.write_text("ranges: {seals: {ndcg@10: [0.8, 0.9]}, whales: {ndcg@10: [0, 1]}}")
    assert rag("report", tmp_path / "b", "--base", tmp_path / "a", "--gate", limits).code == 0
    assert read_title(tmp_path / "b" / "seals") == "# PASS: seals with default"
    assert read_title(tmp_path / "b" / "whales") == "# FAIL: whales with default"


def test_a_base_without_the_dataset_is_refused(rag: Rag, tmp_path: Path) -> None:
    base = write_run_folder(tmp_path / "a", GOOD, dataset="whales")
    run = write_run_folder(tmp_path / "b", GOOD)
    assert rag("report", run, "--base", base).code == 0
    assert "datasets are whales and seals" in (run / "report.md").read_text()


def test_a_run_is_the_same_run_after_its_report_was_written_again(rag: Rag, tmp_path: Path) -> None:
    base, run = write_run_folder(tmp_path / "a", BAD), write_run_folder(tmp_path / "b", GOOD)
    rag("report", run)
    first = rag("promote", run, "--json").json
    rag("report", run, "--base", base)
    assert rag("promote", run, "--json").json == first


def test_each_question_is_a_line_of_json_in_which_null_is_not_measured(rag: Rag, tmp_path: Path) -> None:
    run = write_run_folder(tmp_path / "a", [0.5], measure="recall@5")
    write_answers(run, "faithfulness", [0.25])
    rag("report", run)
    (line,) = (run / "per_question.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "query_id": "q0",
        "metrics": {"recall_at_k": {"5": 0.5, "10": None}, "mrr": None, "ndcg": None, "map": None},
        "answer_quality": {"faithfulness": 0.25, "relevance": None, "completeness": None},
    }
