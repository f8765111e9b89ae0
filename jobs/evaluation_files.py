"""The files of an evaluation, for other programs and for inspection."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.evaluation_runs import ANSWERS
from rag_core.errors import UsageError
from rag_core.evaluation.conversation_groups import find_follow_ups
from rag_core.evaluation.dataset import write_qrels, write_run
from rag_core.evaluation.report import Evaluation, to_json
from rag_core.evaluation.stages import JudgedQuestion, trec_run

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
        ("turn", pa.int64()),
        ("follow_up", pa.bool_()),  # null if the rules were not applied
        ("failure", pa.string()),  # the label of the failure waterfall
    ]
)


def make_folder(folder: Path) -> None:
    """Creates the folder with a subfolder for TREC runs. Raises the error of `check_folder`."""
    check_folder(folder)
    (folder / "runs").mkdir(exist_ok=True)


def check_folder(folder: Path) -> None:
    """Creates the folder, so that an unusable one is an error before anything is measured.

    Raises UsageError if it cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"--out must be a folder that can be written to, got {folder}: {error.strerror}") from None


def write_evaluation(
    folder: Path, evaluation: Evaluation, description: Mapping[str, Any], failures: Mapping[str, str]
) -> None:
    """Writes report.json, questions.parquet, qrels.trec, and a TREC run of every stage, to a folder of `make_folder`.

    `description` becomes part of the report. `failures` holds the labels of failed questions. The rankings and answers
    of an earlier run in the folder are deleted.
    """
    for file in (folder / ANSWERS, *folder.glob("runs/*.trec")):
        file.unlink(missing_ok=True)
    report = {**description, **to_json(evaluation)}
    (folder / "report.json").write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    rows = [{**question_row(judged), "failure": failures.get(judged.question.id)} for judged in evaluation.questions]
    pq.write_table(pa.Table.from_pylist(rows, QUESTIONS), folder / "questions.parquet")
    write_qrels(folder / "qrels.trec", {judged.question.id: judged.question.grades for judged in evaluation.questions})
    for stage in (summary.stage for summary in evaluation.stages if summary.measures):
        write_run(folder / "runs" / f"{quote(stage, safe=' ')}.trec", trec_run(evaluation.questions, stage), stage)


def question_row(judged: JudgedQuestion) -> dict[str, Any]:
    return {
        "question_id": judged.question.id,
        "text": judged.question.text,
        "seconds": judged.trace.seconds,
        "error": judged.trace.error,
        "grades": list(judged.question.grades.items()),
        "lost": list(judged.lost_at.items()),
        "relevant_chunks": list(map(str, judged.answer.by_chunk)),
        "stages": [
            {
                "stage": stage,
                "documents": list(ranking),
                "measures": list(judged.measures[stage].items()),
                "chunks": list(map(str, judged.chunks.get(stage, ()))),
                "chunk_measures": list(judged.chunk_measures.get(stage, {}).items()),
            }
            for stage, ranking in judged.rankings.items()
        ],
        "timings": [
            {"stage": report.stage, "seconds": report.seconds, "error": report.error} for report in judged.trace.stages
        ],
        "turn": judged.question.turn,
        "follow_up": find_follow_ups([judged]).get(judged.question.id),
    }
