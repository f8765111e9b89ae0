"""The judge of a profile on claims that people labelled."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from commands import rag_in_process

from rag_core.errors import InvalidRunError, JudgeError
from rag_core.evaluation.claims import LabelledClaim, write_claims
from rag_core.evaluation.feedback import cohen_kappa
from rag_core.evaluation.judge_figures import JudgedClaim, estimate_agreement, judge_claims, measure_judge
from rag_core.types import Answer, Passage, Verdict

CLAIMS = [
    LabelledClaim(id=f"{n}", context=f"The gate {n} opens at nine.", text=text, is_supported=supported)
    for n in range(10)
    for text, supported in ((f"The gate {n} opens at nine.", True), ("Quotas rose sharply in Lisbon.", False))
    if (n % 2 == 0) is supported
]


class WordJudge:
    """Supports an answer that is its passage; fails if the passage says so."""

    async def judge(self, answer: Answer, passages: Sequence[Passage]) -> Verdict:
        if passages[0].text == "fail":
            raise JudgeError("out of order")
        is_equal = answer.text == passages[0].text
        return Verdict(grade="supported" if is_equal else "unsupported", score=float(is_equal))


def judge(*claims: LabelledClaim) -> list[JudgedClaim]:
    return list(judge_claims(WordJudge(), claims, callers=3))


def test_a_judge_that_agrees_with_people_has_the_highest_figures() -> None:
    figures = measure_judge(judge(*CLAIMS))
    means = {name: estimate.mean for name, estimate in figures.measures.items()}
    assert means == {
        "supported": 0.5,
        "auroc": 1.0,
        "balanced_accuracy": 1.0,
        "kappa": 1.0,
        "recall": 1.0,
        "false_alarms": 0.0,
    }
    assert figures.grades["unsupported"]["unsupported"] == 5
    assert [judged.claim.id for judged in figures.judged] == [claim.id for claim in CLAIMS]


def test_kappa_is_cohens_and_balanced_accuracy_the_mean_of_both_sides() -> None:
    pairs = [("y", "y")] * 30 + [("y", "n")] * 10 + [("n", "y")] * 15 + [("n", "n")] * 45
    accuracy, kappa = estimate_agreement(30, 40, 15, 60)
    assert accuracy.mean == pytest.approx((30 / 40 + 45 / 60) / 2)
    assert kappa.mean == pytest.approx(cohen_kappa(pairs))
    assert kappa.low < kappa.mean < kappa.high
    assert accuracy.low < accuracy.mean < accuracy.high


def test_a_claim_that_could_not_be_judged_lowers_the_coverage() -> None:
    failing = LabelledClaim(id="f", context="fail", text="x", is_supported=True)
    figures = measure_judge(judge(*CLAIMS, failing))
    assert (figures.coverage, figures.is_valid) == (pytest.approx(10 / 11), False)
    assert (figures.failed[0].error, figures.measures["recall"].mean) == ("JudgeError: out of order", 1.0)
    with pytest.raises(InvalidRunError, match="out of order"):
        measure_judge(judge(failing))


@pytest.fixture
def rag(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("RAG_EMBEDDING__TYPE", "hashing")
    return rag_in_process(capfd)


def test_the_command_measures_the_judge_of_the_profile(rag: Any, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
        write_claims(folder, CLAIMS)
    measured = rag("evaluate", *folders, "--json", "--out", tmp_path / "out")
    assert [report["dataset"] for report in measured.json] == ["one", "other", "mean"]
    report, mean = measured.json[0], measured.json[-1]
    assert (mean["claims"], mean["measures"]["auroc"]) == (20, {"mean": 1.0})
    assert (report["claims"], report["coverage"], report["judge"]["type"]) == (10, 1.0, "lexical")
    assert report["measures"]["auroc"]["mean"] == 1.0
    assert {"command", "commit", "finished", "versions"} <= report.keys()
    assert json.loads((tmp_path / "out" / "one" / "report.json").read_text()) == report
    rows = pq.read_table(tmp_path / "out" / "one" / "claims.parquet").to_pylist()
    assert [row["claim_id"] for row in rows] == [claim.id for claim in CLAIMS]
    printed = rag("evaluate", folders[0])
    assert "balanced accuracy" in " ".join(printed.out.split())
    assert "one: supported for people: 5 supported" in printed.out


def test_claims_are_not_measured_with_options_for_questions(rag: Any, tmp_path: Path) -> None:
    write_claims(tmp_path, CLAIMS)
    assert "measure only the judge" in rag("evaluate", tmp_path, "--answers").err
    (tmp_path / "questions").mkdir()
    assert "in separate calls" in rag("evaluate", tmp_path, tmp_path / "questions").err


def test_claims_with_one_label_and_an_unusable_folder_are_errors_before_anything_is_judged(
    rag: Any, tmp_path: Path
) -> None:
    write_claims(tmp_path, CLAIMS)
    refused = rag("evaluate", tmp_path, "--limit", 1)
    assert "must have claims with label 1 and with label 0 among the first 1" in refused.err
    (tmp_path / "file").touch()
    refused = rag("evaluate", tmp_path, "--out", tmp_path / "file" / "out")
    assert "--out must be a folder that can be written to" in refused.err
    assert "judging" not in refused.err


def test_datasets_with_the_same_name_do_not_overwrite_each_other(rag: Any, tmp_path: Path) -> None:
    folders = [tmp_path / "one" / "claims", tmp_path / "other" / "claims"]
    for folder in folders:
        folder.mkdir(parents=True)
        write_claims(folder, CLAIMS)
    refused = rag("evaluate", *folders, "--out", tmp_path / "out")
    assert "datasets must have different names, got claims, claims" in refused.err
    assert not (tmp_path / "out").exists()


def test_claims_are_checked_and_shown(rag: Any, tmp_path: Path) -> None:
    write_claims(tmp_path, CLAIMS)
    assert rag("dataset", "check", tmp_path, "--json").json["claims"] == 10
    assert rag("dataset", "show", tmp_path, "--limit", 1, "--json").json[0]["text"] == "The gate 0 opens at nine."
    (tmp_path / "judge.jsonl").write_text('{"_id": "a", "context": "c", "answer": "a", "label": "yes"}\n')
    checked = rag("dataset", "check", tmp_path)
    assert (checked.code, f"broken: {tmp_path}/judge.jsonl:1: 'label' must be 0 or 1" in checked.out) == (1, True)
