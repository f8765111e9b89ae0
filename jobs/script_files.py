"""The files of an evaluation of scripted conversations, for other programs and for inspection."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rag_core.evaluation.script_figures import ScriptFigures
from rag_core.evaluation.scripted_conversations import ScriptedTurn
from rag_core.evaluation.scripted_replies import ScriptedReply, cites_expected, has_facts, name_failure

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
    pq.write_table(pa.Table.from_pylist(rows, TURNS), folder / "turns.parquet")
    (folder / "report.json").write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


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
