"""`rag dataset import`: other projects' layouts become ours, or nothing is written."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import rag_in_process
from trees import write

from rag_core.errors import DatasetError, UsageError
from rag_core.evaluation.claims import read_claims
from rag_core.evaluation.dataset import read_corpus, read_dataset
from rag_core.evaluation.dataset_import import Format, import_dataset
from rag_core.types import Message

BEIR = {
    "corpus.jsonl": '{"_id": "d1", "title": "T", "text": "One.", "metadata": {}}\n{"_id": "d2", "text": "Two."}\n',
    "queries.jsonl": '{"_id": "q1", "text": "One?"}\n',
    "queries_train.jsonl": '{"_id": "q2", "text": "Two?"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
    "qrels/train.tsv": "query-id\tcorpus-id\tscore\nq2\td2\t2\n",
}
TREC = {
    "qrels.txt": "301 0 FT-1 1\n301 0 FT-2 0\n",
    "topics.txt": "<top>\n<num> Number: 301\n<title> Organized\nCrime\n<desc> Description:\nWho?\n</top>\n",
    "docs.sgml": "<DOC>\n<DOCNO> FT-1 </DOCNO>\n<HEADLINE>Gangs</HEADLINE>\n<TEXT>\nIn <b>towns</b>.\n</TEXT>\n</DOC>\n"
    "<DOC>\n<DOCNO>FT-2</DOCNO>\n<TEXT>\nElsewhere.\n</TEXT>\n</DOC>\n",
}
TABBED = {"qrels": "1\t0\t7\t1\n", "queries.tsv": "1\twhat?\n", "corpus.tsv": "7\tThat.\n"}
SAMPLES = [
    {"user_input": "How often?", "reference": "every 90 days", "reference_contexts": ["Every 90 days.", "Keys."]},
    {"user_input": "Who?", "reference": "the operator", "reference_contexts": ["Keys."], "response": "nobody"},
    {"user_input": "Why?", "reference": None, "reference_contexts": None},
]
TASK = {
    "task_id": "c<::>2",
    "Answerability": ["PARTIAL"],
    "Multi-Turn": float("nan"),
    "input": [
        {"speaker": "user", "text": "Who plays?"},
        {"speaker": "agent", "text": "The Cardinals."},
        {"speaker": "user", "text": "Where?"},
    ],
    "targets": [{"speaker": "agent", "text": "In London."}],
    "contexts": [{"document_id": "p1", "title": "2017", "text": "In London.", "score": 2.5}],
}
CLAIMS = [
    {"context": "Every 90 days.", "answer": "Every day.", "label": 0},
    {"doc": "A.", "claim": "A.", "label": True},
]


def lines(*rows: Any) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def test_beir_keeps_all_splits(tmp_path: Path) -> None:
    checks = import_dataset("beir", write(tmp_path / "source", BEIR), tmp_path / "target")
    assert {split: check.facts["questions"] for split, check in checks.items()} == {"test": 1, "train": 1}
    assert [question.grades for question in read_dataset(tmp_path / "target", "train").questions] == [{"d2": 2}]
    assert next(read_corpus(tmp_path / "target" / "corpus.jsonl")).title == "T"


def test_the_target_can_be_the_folder_that_the_shell_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "source", BEIR)
    (tmp_path / "target").mkdir()
    monkeypatch.chdir(tmp_path / "target")
    assert import_dataset("beir", source, Path())["test"].facts["dataset"] == "target"
    assert sorted(path.name for path in Path().iterdir()) == ["corpus.jsonl", "qrels", "queries.jsonl"]


def test_trec_records_can_share_a_line(tmp_path: Path) -> None:
    documents = "<DOC> <DOCNO>FT-1</DOCNO> <TEXT>Here.</TEXT> </DOC><doc><docno>FT-2</docno>There.</doc>\n"
    topics = "<top> <num> Number: 301 <title> Crime </top>\n"
    source = write(tmp_path / "source", {**TREC, "docs.sgml": documents, "topics.txt": topics})
    import_dataset("trec", source, tmp_path / "target")
    assert {document.id: document.text for document in read_corpus(tmp_path / "target" / "corpus.jsonl")} == {
        "FT-1": "Here.",
        "FT-2": "There.",
    }
    assert [question.text for question in read_dataset(tmp_path / "target").questions] == ["Crime"]


def test_trec_has_tagged_documents_and_topics(tmp_path: Path) -> None:
    import_dataset("trec", write(tmp_path / "source", TREC), tmp_path / "target")
    dataset = read_dataset(tmp_path / "target")
    assert [(question.id, question.text) for question in dataset.questions] == [("301", "Organized Crime")]
    assert dataset.questions[0].grades == {"FT-1": 1, "FT-2": 0}
    assert [(row.id, row.title, row.text) for row in read_corpus(dataset.corpus)] == [
        ("FT-1", "Gangs", "In towns."),
        ("FT-2", "", "Elsewhere."),
    ]


def test_trec_can_have_tabs_instead_of_tags(tmp_path: Path) -> None:
    import_dataset("trec", write(tmp_path / "source", TABBED), tmp_path / "target")
    (question,) = read_dataset(tmp_path / "target").questions
    assert (question.text, question.grades) == ("what?", {"7": 1})


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
def test_the_contexts_of_ragas_become_documents(tmp_path: Path, suffix: str) -> None:
    source = tmp_path / f"samples.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(SAMPLES), source)
    else:
        source.write_text(json.dumps(SAMPLES) if suffix == "json" else lines(*SAMPLES))
    import_dataset("ragas", source, tmp_path / "target")
    dataset = read_dataset(tmp_path / "target")
    assert [question.grades for question in dataset.questions] == [{"c1": 1, "c2": 1}, {"c2": 1}]
    assert [question.references for question in dataset.asked] == [("every 90 days",), ("the operator",)]
    assert [row.text for row in read_corpus(dataset.corpus)] == ["Every 90 days.", "Keys."]


def test_a_task_of_mtrag_becomes_a_question_with_its_history(tmp_path: Path) -> None:
    (tmp_path / "reference.jsonl").write_text(lines(TASK))
    import_dataset("mtrag", tmp_path / "reference.jsonl", tmp_path / "target")
    (question,) = read_dataset(tmp_path / "target").questions
    assert (question.id, question.text, question.answerable) == ("c<::>2", "Where?", None)
    assert question.history == (
        Message(role="user", text="Who plays?"),
        Message(role="assistant", text="The Cardinals."),
    )
    assert (question.references, question.grades) == (("In London.",), {"p1": 1})


def test_claims_get_one_shape(tmp_path: Path) -> None:
    (tmp_path / "claims.jsonl").write_text(lines(*CLAIMS))
    checks = import_dataset("claims", tmp_path / "claims.jsonl", tmp_path / "target")
    assert [(claim.id, claim.text, claim.is_supported) for claim in read_claims(tmp_path / "target")] == [
        ("claim-1", "Every day.", False),
        ("claim-2", "A.", True),
    ]
    assert (checks["test"].facts["supported"], checks["test"].problems) == (1, ())


BROKEN: list[tuple[Format, dict[str, str], str, str]] = [
    ("beir", {**BEIR, "corpus.jsonl": '{"_id": "d1", "text": "One."}\n{"_id": 2}\n'}, "", r"corpus.jsonl:2: '_id'"),
    ("beir", {**BEIR, "corpus.jsonl": BEIR["corpus.jsonl"] * 2}, "", "duplicate document id 'd1'"),
    ("beir", {**BEIR, "queries_train.jsonl": '{"_id": "q1", "text": "2?"}'}, "", "question 'q1' has another text"),
    ("beir", {name: BEIR[name] for name in ("corpus.jsonl", "queries.jsonl")}, "", "must contain qrels/SPLIT.tsv"),
    ("trec", {**TREC, "docs.sgml": "<DOC>\n<DOCNO>1</DOCNO>\n<DOC>\n"}, "", r"docs.sgml:1: <doc> must end with </doc>"),
    ("trec", {**TREC, "topics.txt": f"{TREC['topics.txt']}<top>\n<num> 2\n</top>"}, "", r"topics.txt:8: a topic must"),
    ("trec", {**TREC, "docs.txt": ""}, "", r"one file named docs\* or .*, got docs.sgml, docs.txt"),
    ("trec", {**TABBED, "corpus.tsv": "7\tThat.\n8 This.\n"}, "", r"corpus.tsv:2: a line must be an id and a text"),
    ("ragas", {"a.jsonl": lines(SAMPLES[0], {"user_input": ""})}, "a.jsonl", r"a.jsonl:2: 'user_input'"),
    ("ragas", {"a.json": json.dumps([SAMPLES[0], {"user_input": []}])}, "a.json", r"a.json: row 2: .* conversation"),
    ("ragas", {"a.jsonl": lines(SAMPLES[2])}, "a.jsonl", "no row has 'reference_contexts'"),
    ("ragas", {"a.parquet": "no"}, "a.parquet", "cannot be read as Parquet"),
    ("mtrag", {"a.jsonl": lines(TASK, TASK)}, "a.jsonl", r"a.jsonl:2: duplicate task"),
    ("mtrag", {"a.jsonl": lines({**TASK, "input": TASK["input"][:2]})}, "a.jsonl", r"a.jsonl:1: .*turn of the user"),  # type: ignore[index]
    ("mtrag", {"a.jsonl": lines({**TASK, "Answerability": []})}, "a.jsonl", r"a.jsonl:1: 'Answerability'"),
    ("claims", {"a.jsonl": lines(*CLAIMS, {**CLAIMS[0], "label": 2})}, "a.jsonl", r"a.jsonl:3: 'label' must be 0 or 1"),
    ("claims", {"a.jsonl": lines(CLAIMS[0])}, "a.jsonl", r"a.jsonl.* must have claims with label 1"),
]


@pytest.mark.parametrize(("format", "files", "source", "message"), BROKEN)
def test_a_broken_source_is_refused_and_nothing_is_written(
    tmp_path: Path, format: Format, files: dict[str, str], source: str, message: str
) -> None:
    write(tmp_path / "source", files)
    with pytest.raises(DatasetError, match=message):
        import_dataset(format, tmp_path / "source" / source, tmp_path / "target")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_folder_with_files_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="new or an empty folder"):
        import_dataset("beir", write(tmp_path / "source", BEIR), tmp_path / "source")


def test_the_command_prints_what_it_imported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rag = rag_in_process(capfd)
    write(tmp_path / "source", {**BEIR, "qrels/test.tsv": f"{BEIR['qrels/test.tsv']}q1\tgone\t1\n"})
    (tmp_path / "target").mkdir()
    imported = rag("dataset", "import", "beir", tmp_path / "source", tmp_path / "target", "--json")
    assert [row["split"] for row in imported.json] == ["test", "train"]
    assert imported.json[0]["problems"] == ["document 'gone' is graded, but is not in the corpus"]
    assert rag("dataset", "import", "beir", tmp_path / "source", tmp_path / "target").code == 2
