"""`rag evaluate` on a few of the demo's scripted conversations, with the hashing embedder."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands import rag_in_process
from trees import HASHING

from rag_core.evaluation.dataset_lines import read_json_lines
from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

DEMO = Path(__file__).parents[2] / "demo"
FOLDERS = ("it", "people", "canteen", "safety")
CONVERSATIONS = ("heron", "alarms", "canteen-hours", "greeting-morning")


@pytest.fixture
def handbook(tmp_path: Path) -> Path:
    """A part of the handbook, with the conversations about it."""
    folder = tmp_path / "handbook"
    for name in FOLDERS:
        shutil.copytree(DEMO / "corpus" / name, folder / "corpus" / name)
    for name in ("glossary.html", "maintenance/spares-list.txt"):
        (folder / "corpus" / name).parent.mkdir(exist_ok=True)
        shutil.copy(DEMO / "corpus" / name, folder / "corpus" / name)
    rows = [
        row
        for file in sorted(DEMO.glob("scripted_conversations*.jsonl"))
        for _, row in read_json_lines(file)
        if row["_id"] in CONVERSATIONS
    ]
    (folder / "scripted_conversations.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_each_turn_is_asked_in_its_session_and_answers_are_also_asked_for_alone(
    handbook: Path,
    store: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for setting in (*HASHING, f"store.url={store.dsn}", "retrieval.timeout_ms=60000"):
        key, _, value = setting.partition("=")
        monkeypatch.setenv(f"RAG_{key.upper().replace('.', '__')}", value)
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "home"))
    rag, out = rag_in_process(capfd), tmp_path / "out"

    ran = rag("evaluate", handbook, "--json", "--callers", 2, "--out", out)
    assert (ran.code, ran.json["dataset"], ran.json["conversations"]) == (0, "handbook", len(CONVERSATIONS))
    assert ran.json["foreign_words"] == {}
    assert ran.json["errors"] == []
    assert json.loads((out / "report.json").read_text()) == ran.json
    rows = pq.read_table(out / "turns.parquet").to_pylist()
    assert len(rows) == ran.json["turns"]
    asked_alone = [row for row in rows if row["alone"]]
    assert [row["expect"] for row in asked_alone] == ["answer"] * ran.json["expectations"]["answer"]["turns"]
    later = [row for row in asked_alone if row["turn"] > 1]
    assert all(row["alone"]["searched"] == [row["question"]] for row in later)
    assert all(row["question"] in row["reply"]["searched"] for row in later)
    assert any(len(row["reply"]["searched"]) > 1 for row in later)

    gate = tmp_path / "gate.yaml"
    gate.write_text("measures: {facts: {floor: 1.0}, right_document: {floor: 0.1}}")
    compared = rag("compare", out, out, "--json").json
    assert {row["measure"] for row in compared["measures"]} == {"right_document", "facts", "follow_up_document"}
    gated = rag("gate", out, "--base", out, "--gate", gate, "--json")
    floors = {check["measure"]: check["outcome"] for check in gated.json["checks"] if check["kind"] == "floor"}
    assert floors == {"facts": "fail", "right_document": "pass"}

    shown = rag("evaluate", handbook, "--limit", 1)
    assert "follow-ups, with history over without: " in shown.out
    assert "turns searched with words of another session: 0" in shown.out
    refused = rag("evaluate", handbook, "--answers")
    assert (refused.code, "options about retrieval and judges do not apply" in refused.err) == (2, True)
