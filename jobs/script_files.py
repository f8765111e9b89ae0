"""The files of an evaluation of scripted conversations, for other programs and for inspection."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rag_core.evaluation.measured_run import MeasuredRun
from rag_core.evaluation.script_figures import MEASURES, ScriptFigures
from rag_core.evaluation.scripted_conversations import ScriptedTurn
from rag_core.evaluation.scripted_replies import ScriptedReply, cites_expected, has_facts, name_failure

TURNS_FILE = "turns.parquet"
REPLY = pa.struct(
    [
        ("answer", pa.string()),
        ("finish", pa.string()),
        ("documents", pa.list_(pa.string())),  # in the order of the markers
        ("searched", pa.list_(pa.string())),
        ("right_document", pa.bool_()),
        ("facts", pa.bool_()),
        ("seconds", pa.float64()),
        ("error", pa.string()),
    ]
)
TURNS = pa.schema(
    [
        ("conversation", pa.string()),
        ("turn", pa.int64()),
        ("question", pa.string()),
        ("expect", pa.string()),
        ("follow_up", pa.bool_()),
        ("documents", pa.list_(pa.string())),
        ("contains", pa.list_(pa.string())),
        ("failure", pa.string()),
        ("reply", REPLY),
        ("alone", REPLY),
    ]
)


def write_script_evaluation(folder: Path, figures: ScriptFigures, report: Mapping[str, Any]) -> None:
    """Writes report.json and turns.parquet to a folder of `check_folder`."""
    rows = [
        {
            "conversation": measured.conversation,
            "turn": measured.position,
            "question": measured.turn.question,
            "expect": measured.turn.expect,
            "follow_up": measured.turn.is_follow_up,
            "documents": list(measured.turn.documents),
            "contains": list(measured.turn.facts),
            "failure": name_failure(measured),
            "reply": _reply_row(measured.turn, measured.reply),
            "alone": _reply_row(measured.turn, measured.alone) if measured.alone else None,
        }
        for measured in figures.turns
    ]
    pq.write_table(pa.Table.from_pylist(rows, TURNS), folder / TURNS_FILE)
    (folder / "report.json").write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def build_script_run(report: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> MeasuredRun:
    """The turns that expect an answer, as questions; `follow_up_document` is `right_document` of follow-ups only."""
    answers = {f"{row['conversation']}/{row['turn']}": row for row in rows if row["expect"] == "answer"}
    values = {name: {id: float(row["reply"][name]) for id, row in answers.items()} for name in MEASURES}
    documents = values["right_document"]
    values["follow_up_document"] = {id: documents[id] for id, row in answers.items() if row["follow_up"]}
    errors = {id for id, row in answers.items() if row["reply"]["error"]}
    return MeasuredRun(
        dataset=report["dataset"],
        split=report["split"],
        profile=report["profile"],
        k=0,
        grades={id: dict.fromkeys(row["documents"], 1) for id, row in answers.items()},
        values=values,
        failed={name: frozenset(errors & measured.keys()) for name, measured in values.items()},
        seconds={"answer": {id: row["reply"]["seconds"] for id, row in answers.items()}},
        answer_measures=tuple(values),
        dataset_hash=report["dataset_hash"],
        judge=json.dumps(report["judge"], sort_keys=True),
        machine=json.dumps(report["machine"], sort_keys=True),
    )


def _reply_row(turn: ScriptedTurn, reply: ScriptedReply) -> dict[str, Any]:
    return {
        "answer": reply.answer,
        "finish": reply.finish,
        "documents": list(reply.documents),
        "searched": list(reply.searched),
        "right_document": cites_expected(turn, reply),
        "facts": has_facts(turn, reply),
        "seconds": reply.seconds,
        "error": reply.error,
    }
