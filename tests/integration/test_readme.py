"""The commands of the README, and of the pages that continue it, run unchanged and print what they show."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml
from documents import ROOT, Block, Reader, read_blocks

from rag_core.evaluation.dataset import read_queries, read_spans
from rag_core.storage import embedded
from tools.picture import draw_answer

pytestmark = [pytest.mark.postgres, pytest.mark.model]

README = (ROOT / "README.md").read_text()
QUESTION = "How long may a dive last in cold water?"


def blocks(document: str, language: str) -> list[Block]:
    return [block for block in read_blocks(document) if block.language == language]


@pytest.fixture(scope="module")
def environment(short_folder: Path) -> Iterator[dict[str, str]]:
    home = short_folder / "readme"
    yield {"RAG_HOME": str(home)}
    embedded.stop(home / "postgres")


def read_page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def test_the_readme_fits_130_lines_and_asks_the_question_of_its_picture() -> None:
    assert len(README.splitlines()) <= 130
    assert README.count(QUESTION) >= 2
    picture = (ROOT / "docs/images/answer.svg").read_text().replace("&#160;", " ")
    assert QUESTION in picture
    assert "http://" not in picture.replace("http://www.w3.org/2000/svg", "")


def test_every_command_prints_what_the_readme_shows(environment: dict[str, str]) -> None:
    (console,) = blocks(README, "console")
    assert len(console.commands) == 3
    Reader(ROOT, environment).run_block(console)


def test_the_python_lines_find_and_answer(environment: dict[str, str]) -> None:
    (program,) = blocks(README, "python")
    hit, *_, answer = Reader(ROOT, environment).run_program(program).strip().splitlines()
    assert "The diving permit" in hit
    assert answer == "Below 5 degrees water temperature a dive lasts no more than 25 minutes. [1]"


def test_the_picture_shows_what_a_terminal_shows(tmp_path: Path) -> None:
    handbook = shutil.copytree(ROOT / "demo/corpus", tmp_path / "handbook")
    drawn = re.sub(r"<[^>]+>", " ", draw_answer(QUESTION, handbook)).replace("&#160;", " ")
    assert "Below 5 degrees water temperature a dive lasts no more than 25 minutes. ¹" in drawn
    assert "supported by verbatim" in drawn


def test_the_page_on_answers_prints_what_it_shows(environment: dict[str, str]) -> None:
    reader = Reader(ROOT, environment)
    reader.run("rag ingest demo/corpus")
    reader.follow(read_page("answers.md"))


def test_the_page_on_python_finds_and_filters(environment: dict[str, str]) -> None:
    (program,) = blocks(read_page("reference/python.md"), "python")
    assert Reader(ROOT, environment).run_program(program).startswith("51 documents\n")


def test_the_page_on_settings_has_a_valid_file(environment: dict[str, str], tmp_path: Path) -> None:
    reader = Reader(tmp_path, environment)
    reader.follow(read_page("how-to/settings.md"))
    (block,) = blocks(read_page("how-to/settings.md"), "yaml")
    reader.write_file(block)
    printed = reader.run(f"rag config show --config {block.file} --profile quick")
    assert re.search(r"embedding\.type\s+hashing\s+profile quick", printed)
    assert re.search(r"chunking\.tokens\s+400", printed)
    jsonschema.validate(yaml.safe_load(block.text), json.loads(reader.run("rag config schema")))


def test_the_page_on_secrets_refers_to_them_and_encrypts(environment: dict[str, str], tmp_path: Path) -> None:
    Reader(tmp_path, environment).follow(read_page("how-to/secrets.md"))


@pytest.mark.skipif(not shutil.which("jq"), reason="needs jq")
def test_the_page_on_evaluation_makes_datasets_and_measures_one(environment: dict[str, str], tmp_path: Path) -> None:
    answers = [{"start": 4, "end": 12}, {"start": 20, "end": 24}]
    row = {"_id": "q1", "doc_id": "d1", "question": "How often?", "answers": answers}
    (tmp_path / "questions.jsonl").write_text(json.dumps(row))
    (tmp_path / "qrels").mkdir()
    Reader(tmp_path, environment).follow(read_page("how-to/evaluate.md"))
    assert read_queries(tmp_path / "queries.jsonl") == {"q1": "How often?"}
    (spans,) = read_spans(tmp_path / "qrels" / "test.spans.jsonl").values()
    assert [(span.document, span.start, span.end) for span in spans] == [("d1", 4, 12), ("d1", 20, 24)]
