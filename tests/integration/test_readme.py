"""The README's commands run as they stand there, and print what it says they print."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml
from documents import ROOT, Block, Reader, read_blocks

from rag_core.evaluation.dataset import read_queries, read_spans
from rag_core.storage import embedded

pytestmark = [pytest.mark.postgres, pytest.mark.model]

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[Block]:
    return [block for block in read_blocks(README) if block.language == language]


@pytest.fixture(scope="module")
def reader(short_folder: Path) -> Iterator[Reader]:
    home = short_folder / "readme"
    yield Reader(ROOT, {"RAG_HOME": str(home)})
    embedded.stop(home / "postgres")


def test_readme_shows_commands_and_python() -> None:
    assert sum(len(block.commands) for block in blocks("console")) >= 7
    assert len(blocks("python")) == 1


def test_every_command_prints_what_the_readme_shows(reader: Reader) -> None:
    for block in blocks("console"):
        reader.run_block(block)


def test_the_python_lines_find_the_alarm(reader: Reader) -> None:
    (program,) = blocks("python")
    printed = reader.run_program(program)
    assert len(printed.strip().splitlines()) >= 3
    assert "larm" in printed


def test_the_yaml_is_a_valid_configuration(reader: Reader, tmp_path: Path) -> None:
    (block,) = blocks("yaml")
    (tmp_path / block.file).write_text(block.text)
    printed = reader.run(f"rag config show --config {tmp_path / block.file} --profile quick")
    assert re.search(r"embedding\.type\s+hashing\s+profile quick", printed)
    assert re.search(r"chunking\.tokens\s+400", printed)
    jsonschema.validate(yaml.safe_load(block.text), json.loads(reader.run("rag config schema")))


@pytest.mark.skipif(not shutil.which("jq"), reason="needs jq")
def test_the_jq_lines_make_what_evaluation_reads(tmp_path: Path) -> None:
    (lines,) = [block.text for block in blocks("sh") if block.text.startswith("jq ")]
    answers = [{"start": 4, "end": 12}, {"start": 20, "end": 24}]
    row = {"_id": "q1", "doc_id": "d1", "question": "How often?", "answers": answers}
    (tmp_path / "questions.jsonl").write_text(json.dumps(row))
    (tmp_path / "qrels").mkdir()
    subprocess.run(["bash", "-ec", lines], cwd=tmp_path, check=True)
    assert read_queries(tmp_path / "queries.jsonl") == {"q1": "How often?"}
    (spans,) = read_spans(tmp_path / "qrels" / "test.spans.jsonl").values()
    assert [(span.document, span.start, span.end) for span in spans] == [("d1", 4, 12), ("d1", 20, 24)]
