"""Folders as `rag evaluate --out` writes them, with invented values."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.evaluation_files import QUESTIONS

ANSWERS = pa.schema(
    [
        ("question_id", pa.string()),
        ("measures", pa.map_(pa.string(), pa.float64())),
        ("failures", pa.map_(pa.string(), pa.string())),
        ("seconds", pa.float64()),
    ]
)


def write_run_folder(
    folder: Path,
    values: Sequence[float],
    *,
    measure: str = "ndcg@10",
    seconds: Sequence[float] = (),
    errors: Mapping[int, str] | None = None,
    **description: Any,
) -> Path:
    """A run whose question number i has the value i of one measure; `description` replaces fields of its report."""
    folder.mkdir(parents=True)
    report = {"dataset": "seals", "split": "test", "profile": "default", "k": 100, **description}
    (folder / "report.json").write_text(json.dumps(report))
    rows = [
        {
            "question_id": f"q{i}",
            "seconds": seconds[i] if seconds else 0.1,
            "error": (errors or {}).get(i, ""),
            "grades": [("d1", 1)],
            "stages": [{"stage": "final", "measures": [(measure, value)]}],
        }
        for i, value in enumerate(values)
    ]
    pq.write_table(pa.Table.from_pylist(rows, QUESTIONS), folder / "questions.parquet")
    return folder


def write_answers(folder: Path, measure: str, values: Sequence[float | None]) -> None:
    """Adds a measure of answers; None is a value that could not be computed."""
    rows = [
        {
            "question_id": f"q{i}",
            "measures": [] if value is None else [(measure, value)],
            "failures": [(measure, "the judge answered no JSON")] if value is None else [],
            "seconds": 1.0,
        }
        for i, value in enumerate(values)
    ]
    pq.write_table(pa.Table.from_pylist(rows, ANSWERS), folder / "answers.parquet")
