"""`rag compare`, `rag gate` and `rag promote` over folders of runs."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import Rag, rag_in_process
from documents import ROOT
from run_folders import write_answers, write_run_folder

QUESTIONS = 200


@pytest.fixture
def rag(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Rag:
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "home"))
    return rag_in_process(capfd)


def draw_values(seed: int = 1, questions: int = QUESTIONS) -> list[float]:
    return np.random.default_rng(seed).uniform(0.3, 0.7, questions).tolist()


def shift(values: list[float], change: float, noise: float = 0.05) -> list[float]:
    """The values with a mean that is changed by exactly `change`."""
    noises = np.random.default_rng(9).normal(0, noise, len(values))
    return (np.array(values) + noises - noises.mean() + change).tolist()


def test_a_better_run_is_recommended(rag: Rag, tmp_path: Path) -> None:
    base = write_run_folder(tmp_path / "a", draw_values())
    better = write_run_folder(tmp_path / "b", shift(draw_values(), 0.03))

    (row,) = rag("compare", base, better, "--json").json["measures"]
    difference = row["comparison"]["difference"]
    assert difference["mean"] == pytest.approx(0.03)
    assert 0 < difference["low"] < 0.03 < difference["high"]
    assert row["adjusted_p"] == row["comparison"]["p"] < 0.001
    assert row["comparison"]["better"] + row["comparison"]["worse"] == QUESTIONS
    assert row["comparison"]["detectable"] == pytest.approx(2.8016 * 0.05 / QUESTIONS**0.5, rel=0.15)
    assert "Take B: it is better in ndcg@10" in rag("compare", base, better).out
    assert "Keep A: B is worse in ndcg@10" in rag("compare", better, base).out


def test_other_ways_of_searching_conversations_are_named(rag: Rag, tmp_path: Path) -> None:
    raw = write_run_folder(tmp_path / "a", draw_values(), conversation="raw")
    fused = write_run_folder(tmp_path / "b", draw_values(), conversation="fused")
    assert "conversations were searched in different ways: A raw and B fused" in rag("compare", raw, fused).out
    assert rag("compare", raw, fused, "--json").json["conversations"] == {"seals": {"A": "raw", "B": "fused"}}
    assert rag("compare", raw, raw, "--json").json["conversations"] == {}


def test_equal_runs_and_small_differences_are_not_called_better(rag: Rag, tmp_path: Path) -> None:
    base = write_run_folder(tmp_path / "a", draw_values())
    same = write_run_folder(tmp_path / "b", draw_values())
    near = write_run_folder(tmp_path / "c", shift(draw_values(), 0.001))

    assert rag("compare", base, same, "--json").json["recommendation"] == "No difference: all values are equal."
    assert rag("compare", base, near, "--json").json["recommendation"].startswith("No difference was shown.")


def test_a_gain_and_a_loss_leave_the_decision_open(rag: Rag, tmp_path: Path) -> None:
    base = write_run_folder(tmp_path / "a", draw_values())
    mixed = write_run_folder(tmp_path / "b", shift(draw_values(), 0.03))
    write_answers(base, "faithfulness", draw_values())
    write_answers(mixed, "faithfulness", shift(draw_values(), -0.03))

    compared = rag("compare", base, mixed, "--json").json
    advice = "B is better in ndcg@10 and worse in faithfulness: decide which of them matters."
    assert compared["recommendation"] == advice
    assert [row["adjusted_p"] / row["comparison"]["p"] for row in compared["measures"]] == [2.0, 2.0]
    write_answers(mixed, "faithfulness", [None, *shift(draw_values(), -0.03)[1:]])
    (row,) = rag("compare", base, mixed, "--measure", "faithfulness", "--json").json["measures"]
    assert row["coverage"] == 1 - 1 / QUESTIONS
    assert (row["measure"], row["comparison"]["difference"]["mean"]) == (
        "faithfulness",
        pytest.approx(-0.03, abs=0.001),
    )
    assert "seals has no measure 'bleu'" in rag("compare", base, mixed, "--measure", "bleu").err


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dataset": "otters"}, "datasets are seals and otters"),
        ({"k": 20}, "seals: numbers k of hits are 100 and 20"),
        ({"dataset_hash": "b"}, "seals: dataset hashes are a and b"),
        ({"grades_hash": "b"}, "seals: hashes of the grades are a and b"),
        ({"judge": "b"}, 'seals: judges are "a" and "b"'),
        ({"own_documents": True}, "seals: answers from own documents are False and True"),
    ],
)
def test_runs_that_measured_something_else_are_refused(
    rag: Rag, tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    facts = {"dataset_hash": "a", "grades_hash": "a", "judge": "a"}
    base = write_run_folder(tmp_path / "a", draw_values(), **facts)
    other = write_run_folder(tmp_path / "b", draw_values(), **{**facts, **change})
    for folder in (base, other):
        write_answers(folder, "faithfulness", draw_values())

    for command in (("compare", base, other), ("gate", other, "--base", base)):
        refused = rag(*command)
        assert refused.code == 5
        assert reason in refused.err


def test_runs_without_hashes_are_refused_by_their_questions(rag: Rag, tmp_path: Path) -> None:
    base = write_run_folder(tmp_path / "a", draw_values(questions=20))
    shorter = write_run_folder(tmp_path / "b", draw_values(questions=18))
    refused = rag("compare", base, shorter)
    assert (refused.code, refused.err) == (5, "error: seals: 2 questions are in one run only, the first is 'q18'\n")


@pytest.mark.parametrize(
    ("change", "outcome", "code"),
    [(0.0, "pass", 0), (-0.005, "pass", 0), (-0.02, "inconclusive", 4), (-0.04, "fail", 1)],
)
def test_the_gate_passes_fails_or_is_inconclusive(
    rag: Rag, tmp_path: Path, change: float, outcome: str, code: int
) -> None:
    base = write_run_folder(tmp_path / "a", draw_values())
    run = write_run_folder(tmp_path / "b", shift(draw_values(), change))
    checked = rag("gate", run, "--base", base, "--json")
    assert (checked.json["outcome"], checked.code) == (outcome, code)


def test_several_datasets_decide_together_although_each_is_inconclusive(rag: Rag, tmp_path: Path) -> None:
    for i in range(8):
        values = draw_values(i, questions=50)
        write_run_folder(tmp_path / "a" / str(i), values, dataset=f"set-{i}")
        write_run_folder(tmp_path / "b" / str(i), shift(values, 0, noise=0.085), dataset=f"set-{i}")
    checked = rag("gate", tmp_path / "b", "--base", tmp_path / "a", "--json").json
    checks = {check["dataset"]: (check["outcome"], check["decisive"]) for check in checked["checks"]}
    assert checks.pop("all") == ("pass", True)
    assert {*checks.values()} == {("inconclusive", False)}
    assert checked["outcome"] == "pass"


def test_one_dataset_that_loses_fails_the_gate(rag: Rag, tmp_path: Path) -> None:
    for name, change in (("a", 0.0), ("b", -0.06)):
        write_run_folder(tmp_path / name / "otters", draw_values(2), dataset="otters")
        write_run_folder(tmp_path / name / "seals", shift(draw_values(), change))
    checks = rag("gate", tmp_path / "b", "--base", tmp_path / "a", "--json").json["checks"]
    assert {check["dataset"]: check["outcome"] for check in checks} == {
        "all": "fail",
        "otters": "pass",
        "seals": "fail",
    }


def test_a_promoted_run_is_the_base(rag: Rag, tmp_path: Path) -> None:
    base = write_run_folder(tmp_path / "a", draw_values())
    worse = write_run_folder(tmp_path / "b", shift(draw_values(), -0.05))

    unpromoted = rag("gate", worse)
    assert unpromoted.code == 5
    assert "no run is promoted for seals with default" in unpromoted.err
    (promoted,) = rag("promote", base, "--json").json
    assert (tmp_path / "home" / "runs" / promoted["run"] / "questions.parquet").is_file()
    assert rag("promote", base, "--json").json == [promoted]
    assert rag("gate", worse).code == 1
    rag("promote", worse)
    assert rag("gate", worse).code == 0


def test_a_gate_file_sets_floors_ranges_and_measures_of_answers(rag: Rag, tmp_path: Path) -> None:
    run = write_run_folder(tmp_path / "a", [0.5] * 40)
    write_answers(run, "faithfulness", [0.9] * 40)
    gate = tmp_path / "gate.yaml"
    gate.write_text(
        "measures: {faithfulness: {floor: 0.95}}\nranges: {seals: {ndcg@10: [0.4, 0.6], faithfulness: [0.0, 0.8]}}\n"
    )
    checked = rag("gate", run, "--gate", gate, "--json")
    assert checked.code == 1
    assert [(check["kind"], check["measure"], check["outcome"]) for check in checked.json["checks"]] == [
        ("floor", "faithfulness", "fail"),
        ("range", "ndcg@10", "pass"),
        ("range", "faithfulness", "fail"),
    ]


def test_a_measure_that_should_be_low_fails_when_it_rises(rag: Rag, tmp_path: Path) -> None:
    gate = tmp_path / "gate.yaml"
    gate.write_text("measures: {hallucination: {direction: lower}}\n")
    base = write_run_folder(tmp_path / "a", draw_values(), measure="hallucination")
    more = write_run_folder(tmp_path / "b", shift(draw_values(), 0.05), measure="hallucination")
    assert rag("gate", more, "--base", base, "--gate", gate).code == 1
    assert rag("gate", base, "--base", more, "--gate", gate).code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factor", "machine", "outcome"), [(1.0, "m1", "pass"), (2.0, "m1", "fail"), (1.0, "m2", "inconclusive")]
)
def test_slower_runs_fail_on_the_same_machine(
    rag: Rag, tmp_path: Path, factor: float, machine: str, outcome: str
) -> None:
    gate = tmp_path / "gate.yaml"
    gate.write_text("max_latency_ratio: 1.15\n")
    times = np.random.default_rng(3).lognormal(-2, 0.3, QUESTIONS)
    base = write_run_folder(tmp_path / "a", draw_values(), seconds=times.tolist(), machine="m1")
    run = write_run_folder(tmp_path / "b", draw_values(), seconds=(factor * times).tolist(), machine=machine)
    for folder in (base, run):
        write_answers(folder, "token_f1", draw_values())
    checks = rag("gate", run, "--base", base, "--gate", gate, "--json").json["checks"]
    outcomes = {check["measure"]: check["outcome"] for check in checks if check["kind"] == "latency"}
    assert outcomes == {"search p95": outcome, "answer p95": "pass" if machine == "m1" else "inconclusive"}


def test_a_run_with_many_failed_questions_is_invalid(rag: Rag, tmp_path: Path) -> None:
    base = write_run_folder(tmp_path / "a", draw_values())
    broken = write_run_folder(tmp_path / "b", draw_values(), errors=dict.fromkeys(range(20), "StoreError: gone"))
    for command in (("gate", broken, "--base", base), ("promote", broken)):
        refused = rag(*command)
        assert refused.code == 5
        assert "ndcg@10 must cover at least 95% of the questions, got 90.0%" in refused.err


def test_an_answer_measure_that_was_not_computed_counts_in_its_coverage(rag: Rag, tmp_path: Path) -> None:
    gate = tmp_path / "gate.yaml"
    gate.write_text("measures: {faithfulness: {}}\n")
    base, run = (write_run_folder(tmp_path / name, draw_values()) for name in "ab")
    write_answers(base, "faithfulness", draw_values())
    write_answers(run, "faithfulness", [None] * 30 + draw_values()[30:])
    assert "faithfulness must cover at least 95% of the questions, got 85.0%" in (
        rag("gate", run, "--base", base, "--gate", gate).err
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("measures: {ndcg@10: {margins: 1}}", "measures.ndcg@10.margins: unknown key"),
        ("alpha: 5", "alpha: Input should be less than 1, got 5"),
    ],
)
def test_a_wrong_gate_file_is_a_usage_error(rag: Rag, tmp_path: Path, text: str, error: str) -> None:
    gate = tmp_path / "gate.yaml"
    gate.write_text(text)
    refused = rag("gate", write_run_folder(tmp_path / "a", draw_values()), "--gate", gate)
    assert refused.code == 2
    assert error in refused.err


def test_a_folder_that_is_not_a_run_is_a_usage_error(rag: Rag, tmp_path: Path) -> None:
    assert rag("promote", tmp_path).code == 2
    damaged = write_run_folder(tmp_path / "a", [0.5])
    (damaged / "report.json").write_text("{}")
    assert rag("promote", damaged).code == 5


def test_a_gate_writes_its_outcome_and_the_time_of_the_run_for_prometheus(rag: Rag, tmp_path: Path) -> None:
    base = write_run_folder(tmp_path / "a", draw_values())
    worse = write_run_folder(tmp_path / "b", shift(draw_values(), -0.1))
    report = json.loads((worse / "report.json").read_text())
    (worse / "report.json").write_text(json.dumps({**report, "finished": "2026-11-26T03:00:00+00:00"}))
    metrics = tmp_path / "gate.prom"
    assert rag("gate", worse, "--base", base, "--metrics", metrics).code == 1
    lines = metrics.read_text().splitlines()
    assert 'rag_evaluation_timestamp_seconds{profile="default",dataset="seals"} 1795662000.0' in lines
    assert 'rag_gate_passed{profile="default",dataset="seals"} 0.0' in lines
    assert any(
        line.startswith('rag_evaluation_score{profile="default",dataset="seals",measure="ndcg@10"}') for line in lines
    )
    assert rag("gate", base, "--base", base, "--metrics", metrics).code == 0
    lines = metrics.read_text().splitlines()
    assert 'rag_gate_passed{profile="default",dataset="seals"} 1.0' in lines
    assert not [line for line in lines if line.startswith("rag_evaluation_timestamp_seconds")]


def test_metrics_require_one_run_of_each_dataset(rag: Rag, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for mode in ("asked", "rewritten"):
        write_run_folder(runs / mode, draw_values())
    refused = rag("gate", runs, "--base", runs, "--metrics", tmp_path / "gate.prom")
    assert (refused.code, "got 2 of seals; pass the folder of one" in refused.err) == (5, True), refused.err
    assert not (tmp_path / "gate.prom").exists()


def test_a_file_of_metrics_that_cannot_be_written_is_a_usage_error(rag: Rag, tmp_path: Path) -> None:
    run = write_run_folder(tmp_path / "a", draw_values())
    refused = rag("gate", run, "--base", run, "--metrics", tmp_path / "missing" / "gate.prom")
    assert refused.code == 2
    assert "gate.prom cannot be written: No such file or directory" in refused.err


@pytest.mark.parametrize(
    ("gate", "supported", "checks"),
    [
        ("phase1", 1.0, [("p95", "answer p95", "pass", 1.0)]),
        ("phase3", 0.96, [("floor", "judge_supported", "pass", 0.96), ("p95", "answer p95", "pass", 1.0)]),
        ("phase3", 0.94, [("floor", "judge_supported", "fail", 0.94), ("p95", "answer p95", "pass", 1.0)]),
    ],
)
def test_the_gates_of_a_rollout_limit_seconds_and_unsupported_answers(
    rag: Rag, tmp_path: Path, gate: str, supported: float, checks: list[tuple[str, str, str, float]]
) -> None:
    run = write_run_folder(tmp_path / "run", draw_values(questions=100))
    write_answers(run, "judge_supported", [float(i < supported * 100) for i in range(100)])
    ran = rag("gate", run, "--gate", ROOT / "examples" / "gates" / f"{gate}.yaml", "--json")
    rows = [(row["kind"], row["measure"], row["outcome"], pytest.approx(row["value"])) for row in ran.json["checks"]]
    assert rows == checks
    assert ran.code == int("fail" in [row[2] for row in checks])


def test_a_limit_in_seconds_needs_the_times_and_fails_above_it(rag: Rag, tmp_path: Path) -> None:
    run = write_run_folder(tmp_path / "run", draw_values(), seconds=[0.2] * 180 + [3.0] * 20)
    gate = tmp_path / "gate.yaml"
    gate.write_text("measures: {}\nmax_p95_s: {search: 2.5}")
    ran = rag("gate", run, "--gate", gate)
    assert (ran.code, "3.000 s, limit 2.5 s" in ran.out) == (1, True)
    gate.write_text("measures: {}\nmax_p95_s: {answer: 2.5}")
    assert (ran := rag("gate", run, "--gate", gate)).code == 5, ran.err
    assert "max_p95_s.answer requires the times of answer; the run of seals has none" in ran.err
