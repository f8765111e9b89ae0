"""`rag dataset check` and `show`, and the hashes of datasets."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import rag_in_process
from trees import write

from rag_core.evaluation.dataset import read_dataset
from rag_core.evaluation.fingerprints import hash_dataset, hash_grades

FILES = {
    "corpus.jsonl": '{"_id": "d1", "text": "One."}\n{"_id": "d2", "text": "Two."}\n',
    "queries.jsonl": '{"_id": "q1", "text": "One?"}\n{"_id": "q2", "text": "Two?"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n",
    "answers.jsonl": '{"_id": "q1", "answers": ["one"]}\n{"_id": "q2", "answers": ["two"]}\n',
}


@pytest.fixture
def rag(capfd: pytest.CaptureFixture[str]) -> Any:
    return rag_in_process(capfd)


def test_a_right_dataset_is_counted(rag: Any, tmp_path: Path) -> None:
    checked = rag("dataset", "check", write(tmp_path, FILES), "--json")
    facts = json.loads(checked.out)
    assert checked.code == 0
    assert (facts["ok"], facts["problems"], facts["documents"], facts["questions"]) == (True, [], 2, 2)
    assert (facts["with_references"], facts["answerable"], facts["unanswerable"]) == (2, 2, 0)


def test_every_broken_line_is_listed(rag: Any, tmp_path: Path) -> None:
    broken = {
        "corpus.jsonl": f'{FILES["corpus.jsonl"]}{{"_id": 3}}\n',
        "qrels/test.tsv": "q1\td1\tgood\nq1\n",
        "answers.jsonl": '{"_id": "q1", "answers": 1}\n',
    }
    checked = rag("dataset", "check", write(tmp_path, {**FILES, **broken}), "--json")
    problems = json.loads(checked.out)["problems"]
    assert checked.code == 1
    assert [problem.removeprefix(f"{tmp_path}/").partition(": ")[0] for problem in problems] == [
        "corpus.jsonl:3",
        "answers.jsonl:1",
        "qrels/test.tsv:1",
        "qrels/test.tsv:2",
    ]


def test_a_grade_of_a_missing_document_is_a_broken_rule(rag: Any, tmp_path: Path) -> None:
    grades = f"{FILES['qrels/test.tsv']}q1\tgone\t1\n"
    checked = rag("dataset", "check", write(tmp_path, {**FILES, "qrels/test.tsv": grades}))
    assert checked.code == 1
    assert "broken: document 'gone' is graded, but is not in the corpus" in checked.out


def test_the_first_questions_are_shown_with_what_is_right(rag: Any, tmp_path: Path) -> None:
    entries = json.loads(rag("dataset", "show", write(tmp_path, FILES), "--limit", 1, "--json").out)
    assert entries == [
        {"question_id": "q1", "question": "One?", "answerable": True, "references": ["one"], "relevant": ["d1"]}
    ]


@pytest.mark.parametrize("changed", ["corpus.jsonl", "queries.jsonl", "answers.jsonl", "qrels/test.tsv"])
def test_a_hash_changes_with_every_file(tmp_path: Path, changed: str) -> None:
    before = read_dataset(write(tmp_path / "before", FILES))
    text = FILES[changed].replace("Two", "Drei").replace('"two"', '"drei"').replace("d2\t1", "d2\t2")
    after = read_dataset(write(tmp_path / "after", {**FILES, changed: text}))
    assert hash_dataset(before) != hash_dataset(after)
    assert (hash_grades(before) != hash_grades(after)) is (changed == "qrels/test.tsv")


def test_a_hash_does_not_depend_on_the_order_of_lines(tmp_path: Path) -> None:
    turned = {name: "\n".join(reversed(text.splitlines())) for name, text in FILES.items() if name != "qrels/test.tsv"}
    one, other = write(tmp_path / "one", FILES), write(tmp_path / "other", {**FILES, **turned})
    assert hash_dataset(read_dataset(one)) == hash_dataset(read_dataset(other))
