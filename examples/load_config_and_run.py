"""Measures the retrievers of YAML files on a dataset, keeps each result as an experiment, and compares them.

The results are JSON files in experiments/results; the comparison is experiments/comparison.md, with charts.

Example: python examples/load_config_and_run.py experiments/sample examples/retrievers/*.yaml
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from rag_core.hyperkb.evaluation.experiment_tracker import ExperimentTracker

METRICS = ("map", "mrr", "precision@10", "recall@10", "f1@10", "ndcg@10")
LATENCIES = ("mean", "p95", "p99")


def main(dataset: str, *files: str) -> None:
    tracker = ExperimentTracker()
    ids = [run_experiment(tracker, dataset, Path(file)) for file in files]
    report = tracker.generate_comparison_report(ids, output_file="experiments/comparison.md")
    print(report.read_text(encoding="utf-8"))


def run_experiment(tracker: ExperimentTracker, dataset: str, file: Path) -> str:
    """Returns the id of the experiment."""
    retriever = yaml.safe_load(file.read_text(encoding="utf-8"))["retriever"]
    report = evaluate(dataset, file)
    id = tracker.create_experiment(
        experiment_name=file.stem,
        description=f"{report['questions']} questions with {report['pipeline_version']}",
        retriever_type=retriever.get("type", "hybrid"),
        retriever_params={key: value for key, value in retriever.items() if key != "type"},
        dataset_name=report["dataset"],
    )
    hits = report["stages"]["final"]
    metrics = {name: hits["measures"][name]["mean"] for name in METRICS}
    speed = {"qps": report["questions_per_second"], "index_build_seconds": report["ingest_seconds"]["total"]}
    tracker.log_result(id, {**metrics, **speed}, {name: hits["latency_ms"][name] for name in LATENCIES})
    return id


def evaluate(dataset: str, file: Path) -> dict[str, Any]:
    """Measures the retriever on a collection of its own, so that the time to build its index is measured, too."""
    collection = f"experiment-{file.stem}"
    printed = run_rag("evaluate", dataset, "--retriever", str(file), "--collection", collection, "--json", "--quiet")
    run_rag("collections", "drop", collection, "--yes")
    report: dict[str, Any] = json.loads(printed)
    return report


def run_rag(*arguments: str) -> bytes:
    command = [sys.executable, "-m", "rag_cli", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603 - this program


if __name__ == "__main__":
    main(*sys.argv[1:])
