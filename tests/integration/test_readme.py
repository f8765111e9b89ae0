"""The README's commands run as they stand there, and print what it says they print."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml

from rag_core.evaluation.dataset import read_queries, read_spans
from rag_core.storage import embedded

pytestmark = [pytest.mark.postgres, pytest.mark.model]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
ANYTHING = "…"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    """(command, what it prints), in the README's order."""
    parts = [part for block in blocks("console") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, printed) for command, _, printed in (part.partition("\n") for part in parts)]


def as_pattern(line: str) -> str:
    """White space is free, because columns are as wide as their contents; numbers of seconds are of the day."""
    spaced = re.sub(r"\d+\.\d\d (?=[a-z])", f"{ANYTHING} ", " ".join(line.split()))
    return ".*".join(re.escape(part) for part in spaced.split(ANYTHING))


@pytest.fixture(scope="module")
def environment(short_folder: Path) -> Iterator[dict[str, str]]:
    home = short_folder / "readme"
    binaries = str(Path(sys.executable).parent)
    yield os.environ | {"RAG_HOME": str(home), "PATH": f"{binaries}:{os.environ['PATH']}"}
    embedded.stop(home / "postgres")


def run(command: str, environment: dict[str, str]) -> str:
    shell = ["bash", "-c", command]
    done = subprocess.run(shell, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def test_readme_shows_commands_and_python() -> None:
    assert len(commands()) >= 7
    assert len(blocks("python")) == 1


def test_every_command_prints_what_the_readme_shows(environment: dict[str, str]) -> None:
    for command, printed in commands():
        actual = " ".join(run(command, environment).split())
        for line in filter(str.strip, printed.splitlines()):
            assert re.search(as_pattern(line), actual), f"$ {command}\nshould print: {line}\nprinted: {actual}"


def test_the_python_lines_find_the_alarm(environment: dict[str, str]) -> None:
    (code,) = blocks("python")
    printed = run(f"python - <<'PYTHON'\n{code}\nPYTHON", environment)
    assert len(printed.strip().splitlines()) >= 3
    assert "larm" in printed


def test_the_yaml_is_a_valid_configuration(environment: dict[str, str], tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    file = tmp_path / "my.yaml"
    file.write_text(text)
    printed = run(f"rag config show --config {file} --profile quick", environment)
    assert re.search(r"embedding\.type\s+hashing\s+profile quick", printed)
    assert re.search(r"chunking\.tokens\s+400", printed)
    jsonschema.validate(yaml.safe_load(text), json.loads(run("rag config schema", environment)))


@pytest.mark.skipif(not shutil.which("jq"), reason="needs jq")
def test_the_jq_lines_make_what_evaluation_reads(tmp_path: Path) -> None:
    (lines,) = [block for block in blocks("sh") if block.startswith("jq ")]
    answers = [{"start": 4, "end": 12}, {"start": 20, "end": 24}]
    row = {"_id": "q1", "doc_id": "d1", "question": "How often?", "answers": answers}
    (tmp_path / "questions.jsonl").write_text(json.dumps(row))
    (tmp_path / "qrels").mkdir()
    subprocess.run(["bash", "-ec", lines], cwd=tmp_path, check=True)
    assert read_queries(tmp_path / "queries.jsonl") == {"q1": "How often?"}
    (spans,) = read_spans(tmp_path / "qrels" / "test.spans.jsonl").values()
    assert [(span.document, span.start, span.end) for span in spans] == [("d1", 4, 12), ("d1", 20, 24)]
