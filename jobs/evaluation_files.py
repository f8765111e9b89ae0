"""An evaluation as files: what others can compute with, and look into."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from rag_core.errors import UsageError
from rag_core.evaluation.dataset import write_qrels, write_run
from rag_core.evaluation.report import Evaluation, as_json
from rag_core.evaluation.stages import Judged, run

STAGE = pa.struct(
    [
        ("stage", pa.string()),
        ("documents", pa.list_(pa.string())),  # best first
        ("measures", pa.map_(pa.string(), pa.float64())),
        ("chunks", pa.list_(pa.string())),  # best first
        ("chunk_measures", pa.map_(pa.string(), pa.float64())),
    ]
)
TIMING = pa.struct([("stage", pa.string()), ("seconds", pa.float64()), ("error", pa.string())])
QUESTIONS = pa.schema(
    [
        ("question_id", pa.string()),
        ("text", pa.string()),
        ("seconds", pa.float64()),
        ("error", pa.string()),
        ("grades", pa.map_(pa.string(), pa.int64())),
        ("lost", pa.map_(pa.string(), pa.string())),
        ("relevant_chunks", pa.list_(pa.string())),
        ("stages", pa.list_(STAGE)),
        ("timings", pa.list_(TIMING)),
    ]
)


def make_folder(folder: Path) -> None:
    """Before anything is measured. UsageError if nothing can be written there."""
    try:
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"--out must be a folder that can be written to, got {folder}: {error.strerror}") from None


def write_evaluation(folder: Path, found: Evaluation, described: Mapping[str, Any]) -> None:
    """Into a folder of `make_folder`: report.json, questions.parquet, qrels.trec, and a TREC run for every stage."""
    report = {**described, **as_json(found)}
    (folder / "report.json").write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    pq.write_table(
        pa.Table.from_pylist([_row(each) for each in found.questions], QUESTIONS), folder / "questions.parquet"
    )
    write_qrels(folder / "qrels.trec", {each.question.id: each.question.grades for each in found.questions})
    for stage in (each.stage for each in found.stages if each.measures):
        write_run(folder / "runs" / f"{quote(stage, safe=' ')}.trec", run(found.questions, stage), stage)


def _row(each: Judged) -> dict[str, Any]:
    return {
        "question_id": each.question.id,
        "text": each.question.text,
        "seconds": each.trace.seconds,
        "error": each.trace.error,
        "grades": list(each.question.grades.items()),
        "lost": list(each.lost.items()),
        "relevant_chunks": list(map(str, each.answer.held)),
        "stages": [
            {
                "stage": stage,
                "documents": list(ranking),
                "measures": list(each.measures[stage].items()),
                "chunks": list(map(str, each.chunks.get(stage, ()))),
                "chunk_measures": list(each.chunk_measures.get(stage, {}).items()),
            }
            for stage, ranking in each.rankings.items()
        ],
        "timings": [
            {"stage": report.stage, "seconds": report.seconds, "error": report.error} for report in each.trace.stages
        ],
    }
