"""Hyper-KB's experiments: their files, and the report that compares them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rag_core.errors import NotFoundError, UsageError
from rag_core.hyperkb.evaluation.experiment_tracker import ExperimentTracker


@pytest.fixture
def tracker(tmp_path: Path) -> ExperimentTracker:
    return ExperimentTracker(tmp_path / "results")


def create(tracker: ExperimentTracker, name: str = "bm25 baseline", dataset: str = "scifact") -> str:
    return tracker.create_experiment(
        experiment_name=name,
        description="BM25 with its defaults",
        retriever_type="sparse",
        retriever_params={"k1": 1.5, "b": 0.75},
        dataset_name=dataset,
    )


def test_results_are_in_the_folder_of_the_documents_by_default() -> None:
    assert ExperimentTracker().folder == Path("experiments/results")


def test_an_experiment_is_one_json_file_with_its_result(tracker: ExperimentTracker) -> None:
    id = create(tracker)
    tracker.log_result(id, metrics={"ndcg@10": np.float64(0.5)}, latency_stats={"mean": 12, "p95": 30.5})
    row = json.loads((tracker.folder / "bm25-baseline.json").read_text())
    assert (id, row["retriever_params"]) == ("bm25-baseline", {"k1": 1.5, "b": 0.75})
    assert row["result"]["metrics"] == {"ndcg@10": 0.5}
    assert row["result"]["latency_stats"] == {"mean": 12.0, "p95": 30.5}
    assert [path.name for path in tracker.folder.iterdir()] == ["bm25-baseline.json"]


def test_a_long_name_is_cut_where_a_file_could_not_have_it(tracker: ExperimentTracker) -> None:
    id = create(tracker, "\u6e2f" * 200)
    assert id == "\u6e2f" * 33
    assert tracker.read_experiment(id).experiment_name == "\u6e2f" * 200


def test_a_name_that_was_used_gets_a_number(tracker: ExperimentTracker) -> None:
    assert [create(tracker) for _ in range(3)] == ["bm25-baseline", "bm25-baseline-2", "bm25-baseline-3"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "high", None])
def test_a_value_that_is_not_finite_is_refused_and_nothing_is_stored(tracker: ExperimentTracker, value: float) -> None:
    id = create(tracker)
    with pytest.raises(UsageError, match=r"result\.metrics\.map"):
        tracker.log_result(id, {"ndcg@10": 0.5, "map": value})
    assert tracker.read_experiment(id).result is None


def test_a_second_result_is_refused(tracker: ExperimentTracker) -> None:
    id = create(tracker)
    tracker.log_result(id, {"map": 0.5})
    with pytest.raises(UsageError, match="has a result already"):
        tracker.log_result(id, {"map": 0.6})


@pytest.mark.parametrize("id", ["other", "../results/bm25-baseline", ""])
def test_an_unknown_experiment_is_not_found(tracker: ExperimentTracker, id: str) -> None:
    create(tracker)
    with pytest.raises(NotFoundError, match="there is no experiment"):
        tracker.log_result(id, {"map": 0.5})


@pytest.mark.parametrize("name", ["", " / ", "..."])
def test_a_name_without_letters_is_refused(tracker: ExperimentTracker, name: str) -> None:
    with pytest.raises(UsageError, match="letter or a digit"):
        create(tracker, name)


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_a_parameter_that_is_not_json_is_refused(tracker: ExperimentTracker, value: object) -> None:
    with pytest.raises(UsageError, match="retriever_params"):
        tracker.create_experiment("a", retriever_params={"k1": value})
    assert not list(tracker.folder.iterdir())


def test_a_damaged_file_is_named(tracker: ExperimentTracker) -> None:
    path = tracker.folder / f"{create(tracker)}.json"
    path.write_text("{")
    with pytest.raises(UsageError, match=str(path)):
        tracker.read_experiment("bm25-baseline")


def test_the_report_has_a_column_per_experiment_and_charts(tracker: ExperimentTracker, tmp_path: Path) -> None:
    for name, value in (("a", 0.5), ("b <c>", 0.25)):
        tracker.log_result(create(tracker, name), {"map": value, f"only|{name}": 1.0}, {"p95": 100 * value})
    report = tracker.generate_comparison_report(["a", "b-c"], output_file=tmp_path / "reports" / "all.md")
    text = report.read_text()
    assert "| map | 0.5 | 0.25 |" in text
    assert "| only\\|a | 1 |  |" in text
    assert "| p95 | 50 | 25 |" in text
    assert "k1 1.5, b 0.75" in text
    for chart in ("all-metrics.svg", "all-latency.svg"):
        assert f"]({chart})" in text
        widths = re.findall(r'<rect .*?width="(.*?)"', report.with_name(chart).read_text())
        assert widths[:2] == ["400.0", "200.0"]


def test_parameters_can_be_nested_as_in_a_retriever_s_file(tracker: ExperimentTracker, tmp_path: Path) -> None:
    id = tracker.create_experiment("a", retriever_params={"sparse_params": {"k1": 1.5, "b": 0.75}, "fusion": "rrf"})
    tracker.log_result(id, {"map": 0.5})
    text = tracker.generate_comparison_report([id], tmp_path / "all.md").read_text()
    assert "sparse_params (k1 1.5, b 0.75), fusion rrf" in text


def test_experiments_on_different_datasets_are_not_called_comparable(
    tracker: ExperimentTracker, tmp_path: Path
) -> None:
    ids = [create(tracker, "a", "scifact"), create(tracker, "b", "cranfield")]
    for id in ids:
        tracker.log_result(id, {"map": 0.5})
    text = tracker.generate_comparison_report(ids, tmp_path / "all.md").read_text()
    assert "cannot be compared" in text
    assert "## Latency" not in text


def test_a_comparison_requires_different_experiments_with_results(tracker: ExperimentTracker, tmp_path: Path) -> None:
    id = create(tracker)
    for ids, message in (([id, id], "different experiments"), ([], "got none"), ([id], "without a result")):
        with pytest.raises(UsageError, match=message):
            tracker.generate_comparison_report(ids, tmp_path / "all.md")
    assert not (tmp_path / "all.md").exists()
