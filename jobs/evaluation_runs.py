"""Finished evaluations, read from the folders of `rag evaluate --out`."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pyarrow.parquet as pq

from jobs.script_files import TURNS_FILE, build_script_run
from rag_core.errors import InvalidRunError, UsageError
from rag_core.evaluation.finished_run import FinishedRun, build_finished_run
from rag_core.evaluation.measured_run import MeasuredRun
from rag_core.evaluation.stages import FINAL

QUESTIONS, ANSWERS, REPORT = "questions.parquet", "answers.parquet", "report.json"
HTML = "report.html"
"""The report as a page, which a run need not have."""

Row: TypeAlias = Mapping[str, Any]
Value = TypeVar("Value")


def find_runs(folder: Path) -> list[Path]:
    """The folder if it is of one dataset, else its subfolders of one dataset each. Raises UsageError without any."""
    folders = [folder, *sorted(folder.iterdir())] if folder.is_dir() else []
    runs = [run for run in folders if (run / QUESTIONS).is_file() and (run / REPORT).is_file()]
    if not runs:
        raise UsageError(f"a run must be a folder of `rag evaluate --out`, got {folder}")
    return runs


def read_runs(folder: Path) -> list[MeasuredRun]:
    """Reads the evaluations in the folder, one per dataset; also that of scripted conversations."""
    if (folder / TURNS_FILE).is_file():
        report = read_report(folder)
        with _translate_errors(folder):
            return [build_script_run(report, pq.read_table(folder / TURNS_FILE).to_pylist())]
    return [read_run(run) for run in find_runs(folder)]


def read_run(folder: Path) -> MeasuredRun:
    """Reads the evaluation of one dataset. Raises InvalidRunError if a file is damaged or of another version."""
    return _read_folder(folder, _build_run)


def read_finished_run(folder: Path) -> FinishedRun:
    """Reads the questions, rankings and answers of one dataset. Raises InvalidRunError as `read_run` does."""
    return _read_folder(folder, build_finished_run)


def read_report(folder: Path) -> Row:
    """Reads report.json. Raises InvalidRunError if it is damaged."""
    with _translate_errors(folder):
        report: Row = json.loads((folder / REPORT).read_text(encoding="utf-8"))
        return report


def _read_folder(folder: Path, build: Callable[[Row, Sequence[Row], Sequence[Row]], Value]) -> Value:
    report = read_report(folder)
    with _translate_errors(folder):
        questions = pq.read_table(folder / QUESTIONS).to_pylist()
        answers = pq.read_table(folder / ANSWERS).to_pylist() if (folder / ANSWERS).is_file() else []
        return build(report, questions, answers)


@contextmanager
def _translate_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRunError(f"{folder} cannot be read as a run of `rag evaluate`: {error!r}") from error


def _build_run(report: Row, questions: Sequence[Row], answers: Sequence[Row]) -> MeasuredRun:
    values: dict[str, dict[str, float]] = {}
    failed: dict[str, set[str]] = {}
    for row in questions:
        for measure, value in next((stage["measures"] for stage in row["stages"] if stage["stage"] == FINAL), ()):
            values.setdefault(measure, {})[row["question_id"]] = value
            if row["error"]:
                failed.setdefault(measure, set()).add(row["question_id"])
    ranking_measures = set(values)
    for row in answers:
        for measure, value in row["measures"]:
            values.setdefault(measure, {})[row["question_id"]] = value
        for measure, _ in row["failures"]:
            failed.setdefault(measure, set()).add(row["question_id"])
    return MeasuredRun(
        dataset=report["dataset"],
        split=report["split"],
        profile=report["profile"],
        k=report["k"],
        grades={row["question_id"]: dict(row["grades"]) for row in questions},
        values=values,
        failed={measure: frozenset(ids) for measure, ids in failed.items()},
        seconds={
            name: {row["question_id"]: row["seconds"] for row in rows}
            for name, rows in (("search", questions), ("answer", answers))
            if rows
        },
        answer_measures=tuple(sorted((values.keys() | failed.keys()) - ranking_measures)),
        own_documents=report.get("own_documents", False),
        conversation=report.get("conversation") or "",
        dataset_hash=report.get("dataset_hash") or "",
        grades_hash=report.get("grades_hash") or "",
        judge=_describe(report.get("judge")),
        machine=_describe(report.get("machine")),
        finished=report.get("finished") or "",
    )


def _describe(value: Any) -> str:
    """A text that is equal for equal JSON values; empty for an empty value."""
    return json.dumps(value, sort_keys=True) if value else ""
