import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from trees import write

from rag_core.errors import DatasetError
from rag_core.evaluation.dataset import (
    file_name,
    folder_name,
    id_from_file_name,
    last_turn,
    read_corpus,
    read_dataset,
    read_qrels,
    read_queries,
    read_run,
    read_spans,
    write_dataset,
    write_documents,
    write_qrels,
    write_run,
)
from rag_core.evaluation.question import CorpusDocument, Question
from rag_core.evaluation.spans import Span
from rag_core.parsing.markup.markdown import MarkdownParser

CORPUS = '{"_id": "d1", "title": "One", "text": "First."}\n{"_id": "d2", "title": "", "text": "Second."}\n'
QUERIES = '{"_id": "q1", "text": "First?"}\n\n{"_id": "q2", "text": "Second?"}\n{"_id": "q3", "text": "Third?"}\n'
SPANS = '{"query_id": "q1", "document_id": "d1", "start": 0, "end": 5}\n'
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td2\t0\n"
BEIR = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": QRELS}


def refusal(folder: Path, changed: Mapping[str, str]) -> str:
    write(folder, {**BEIR, **changed})
    with pytest.raises(DatasetError) as refused:
        list(read_corpus(read_dataset(folder).corpus))
    return str(refused.value).removeprefix(f"{folder}/")


def test_questions_are_those_with_a_relevant_document(tmp_path: Path) -> None:
    dataset = read_dataset(write(tmp_path / "small", BEIR))
    assert dataset.name == "small"
    assert dataset.questions == (Question(id="q1", text="First?", grades={"d1": 2, "d2": 0}),)
    assert list(read_corpus(dataset.corpus)) == [
        CorpusDocument(id="d1", title="One", text="First."),
        CorpusDocument(id="d2", text="Second."),
    ]


def test_a_dataset_that_is_written_is_read_as_it_was(tmp_path: Path) -> None:
    corpus = [
        CorpusDocument(id="a/b", title="Ünïcode\u2028", text='Two\nlines, "quoted".'),
        CorpusDocument(id="c", text=""),
    ]
    spans = (Span(document="a/b", start=0, end=3), Span(document="a/b", start=4, end=9))
    questions = (Question(id="q 1", text="¿Qué?", grades={"a/b": 3, "c": 0}, spans=spans),)
    write_dataset(tmp_path / "own", corpus, questions, split="dev")
    dataset = read_dataset(tmp_path / "own", "dev")
    assert (dataset.questions, list(read_corpus(dataset.corpus))) == (questions, corpus)


def test_a_document_with_a_span_is_relevant_where_no_grade_says_otherwise(tmp_path: Path) -> None:
    spans = "".join(
        SPANS.replace("d1", document).replace("q1", query) for query, document in [("q1", "d1"), ("q3", "d2")]
    )
    write(tmp_path, {**BEIR, "qrels/test.spans.jsonl": spans})
    assert {question.id: question.grades for question in read_dataset(tmp_path).questions} == {
        "q1": {"d1": 2, "d2": 0},
        "q3": {"d2": 1},
    }
    (tmp_path / "qrels" / "test.tsv").unlink()
    questions = read_dataset(tmp_path).questions
    assert {question.id: question.grades for question in questions} == {"q1": {"d1": 1}, "q3": {"d2": 1}}
    assert questions[1].spans == (Span(document="d2", start=0, end=5),)


@pytest.mark.parametrize("start_end", ["5, 5", "-1, 4", "0, 1.5", "null, 3", "false, 3"])
def test_an_invalid_span_is_refused(tmp_path: Path, start_end: str) -> None:
    start, end = start_end.split(", ")
    row = f'{{"query_id": "q", "document_id": "d", "start": {start}, "end": {end}}}'
    write(tmp_path, {"spans.jsonl": row})
    with pytest.raises(
        DatasetError, match=r"spans.jsonl:1: start and end of a span must be integers with 0 <= start < end, got "
    ):
        read_spans(tmp_path / "spans.jsonl")


def test_spans_of_files_of_unknown_questions_or_beyond_their_text_are_refused(tmp_path: Path) -> None:
    strange = {"qrels/test.spans.jsonl": SPANS.replace("q1", "q9")}
    assert refusal(tmp_path, strange).endswith("1 graded questions have no text, the first is 'q9'")
    beyond = {"qrels/test.spans.jsonl": SPANS.replace("5}", "7}")}
    assert (
        refusal(tmp_path, beyond)
        == "a span must be within the 6 characters of its document, got 0 to 7 of document 'd1'"
    )
    of_files = {"qrels/test.spans.jsonl": SPANS, "html/d1.html": "<p>First.</p>"}
    assert refusal(tmp_path, of_files).endswith("answer spans require corpus.jsonl, got a corpus in html/")


def test_another_split_has_its_own_questions(tmp_path: Path) -> None:
    more = {"queries_train.jsonl": '{"_id": "t", "text": "Train?"}', "qrels/train.tsv": "t\td1\t1\n"}
    dataset = read_dataset(write(tmp_path, {**BEIR, **more}), "train")
    assert [question.text for question in dataset.questions] == ["Train?"]


def test_a_folder_of_files_is_taken_before_their_text(tmp_path: Path) -> None:
    dataset = read_dataset(write(tmp_path, {**BEIR, "html/d1.html": "<p>First.</p>"}))
    assert dataset.corpus == tmp_path / "html"


def test_the_last_turn_of_a_conversation_is_the_question() -> None:
    assert last_turn("|user|: What is a sluice?\n|user|: And who opens it?") == "And who opens it?"
    assert last_turn(" Who opens it? ") == "Who opens it?"


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"corpus.jsonl": f"{CORPUS}{{"}, "corpus.jsonl:3: a line must be one JSON object: "),
        ({"corpus.jsonl": "[1]"}, "corpus.jsonl:1: a line must be one JSON object, got '[1]'"),
        ({"corpus.jsonl": '{"_id": "x"}'}, "corpus.jsonl:1: 'text' must be a string, got None"),
        (
            {"queries.jsonl": '\n{"_id": 7, "text": "?"}'},
            "queries.jsonl:2: '_id' must be a string that is not empty, got 7",
        ),
        ({"queries.jsonl": f"{QUERIES}{QUERIES}"}, "queries.jsonl:5: duplicate question id 'q1'"),
        (
            {"qrels/test.tsv": f"{QRELS}q1\td1\n"},
            "qrels/test.tsv:5: a line of qrels must have 3 (BEIR) or 4 (TREC) fields, got 2",
        ),
        ({"qrels/test.tsv": f"{QRELS}q1\td9\tgood\n"}, "qrels/test.tsv:5: a grade must be an integer, got 'good'"),
        (
            {"qrels/test.tsv": f"{QRELS}q1\td1\t1\n"},
            "qrels/test.tsv:5: duplicate document 'd1' for question 'q1'",
        ),
    ],
)
def test_a_malformed_line_is_named_with_its_rule(tmp_path: Path, changed: Mapping[str, str], complaint: str) -> None:
    assert refusal(tmp_path, changed).startswith(complaint)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"qrels/test.tsv": "q9\td1\t1\n"}, "1 graded questions have no text, the first is 'q9'"),
        ({"qrels/test.tsv": "q1\td1\t0\n"}, "no question has a relevant document in qrels/test.tsv"),
    ],
)
def test_grades_without_questions_are_refused(tmp_path: Path, changed: Mapping[str, str], complaint: str) -> None:
    assert complaint in refusal(tmp_path, changed)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"queries.jsonl cannot be read: No such file or directory"):
        read_dataset(tmp_path)
    del (files := dict(BEIR))["corpus.jsonl"]
    with pytest.raises(DatasetError, match=r"has no corpus.jsonl, and none of the folders documents, html"):
        read_dataset(write(tmp_path, files))


def test_trec_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    run = {"q1": {"d1": 0.1 + 0.2, "d2": -3.0}, "q2": {"d3": 1e-9}}
    write_run(tmp_path / "own.trec", run, "own")
    assert read_run(tmp_path / "own.trec") == run
    assert (tmp_path / "own.trec").read_text().startswith("q1 Q0 d1 1 0.30000000000000004 own\nq1 Q0 d2 2 -3.0 own\n")
    qrels = {"q1": {"d1": 2, "d2": -1}}
    write_qrels(tmp_path / "qrels.trec", qrels)
    assert read_qrels(tmp_path / "qrels.trec") == qrels


def test_white_space_in_an_id_is_not_a_column_of_a_trec_file(tmp_path: Path) -> None:
    write_run(tmp_path / "own.trec", {"q 1": {"a\tb%20": 1.0}}, "my run")
    assert (tmp_path / "own.trec").read_text() == "q%201 Q0 a%09b%20 1 1.0 my%20run\n"


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("q1 Q0 d1 1 0.5", "a line of a run must have 6 fields, got 5"),
        ("q1 Q0 d1 1 high own", "a score must be a number, got 'high'"),
        ("q1 Q0 d1 1 nan own", "a score must be finite, got 'nan'"),
    ],
)
def test_a_malformed_line_of_a_run_is_named(tmp_path: Path, line: str, rule: str) -> None:
    (tmp_path / "bad.trec").write_text(f"q0 Q0 d1 1 1 own\n{line}\n")
    with pytest.raises(DatasetError, match=rf"bad\.trec:2: {rule}"):
        read_run(tmp_path / "bad.trec")


@pytest.mark.parametrize("id", ["CACM-0001", "a/b", "806502664_349-964-0-615", "ü ~$%2F.x", ".", "<::>8"])
def test_an_id_is_read_back_from_its_file_name(id: str, tmp_path: Path) -> None:
    write_documents([CorpusDocument(id=id, text="x")], tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == file_name(id)
    assert id_from_file_name(str(path)) == id


def test_an_id_that_is_too_long_for_a_file_is_refused() -> None:
    with pytest.raises(DatasetError, match="must fit into a file name of 255 characters"):
        file_name("ü" * 100)


def test_a_corpus_that_is_written_again_changes_only_the_files_that_differ(tmp_path: Path) -> None:
    write_documents([CorpusDocument(id=id, text=f"text of {id}") for id in "abc"], tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    write_documents(
        [
            CorpusDocument(id="a", text="text of a"),
            CorpusDocument(id="b", text="another"),
            CorpusDocument(id="d", text=""),
        ],
        tmp_path,
    )
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert sorted(after) == ["a.md", "b.md", "d.md"]
    assert after["a.md"] == before["a.md"]
    assert after["b.md"] != before["b.md"]


def test_files_that_no_corpus_wrote_stay(tmp_path: Path) -> None:
    (tmp_path / "thesis.docx").write_text("mine")
    (tmp_path / "folder").mkdir()
    write_documents([CorpusDocument(id="a", text="1")], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.md", "folder", "thesis.docx"]


@pytest.mark.parametrize("collection", ["/home/me/notes", "../notes", "..", ".", "a/b", "a\0", "%2E%2E"])
def test_the_folder_of_a_collection_lies_where_all_do(collection: str, tmp_path: Path) -> None:
    folder = tmp_path / "home" / folder_name(collection)
    assert folder.resolve().parent == tmp_path / "home"
    assert folder_name("my data-1.2") == "my data-1.2"
    assert folder_name("a/b") != folder_name("a%2Fb")
    with pytest.raises(DatasetError, match="must fit into a folder name of 255 bytes"):
        folder_name("ж" * 128)


def test_half_a_character_in_a_corpus_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "text": "x"}\n{"_id": "b", "text": "x \\ud83d"}\n')
    with pytest.raises(DatasetError, match=r"corpus\.jsonl:2: 'text' must be Unicode text, got half a surrogate pair"):
        list(read_corpus(tmp_path / "corpus.jsonl"))


def test_two_documents_of_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="duplicate document id 'a'"):
        write_documents([CorpusDocument(id="a", text="1"), CorpusDocument(id="a", text="2")], tmp_path)


def test_the_title_is_the_documents_and_not_its_text(tmp_path: Path) -> None:
    title, text = 'Keys: "old" & new 🗝', "---\nnot front matter\n---\nThe keys."
    write_documents([CorpusDocument(id="a", title=title, text=text)], tmp_path)
    document = MarkdownParser().parse("file:///a.md", (tmp_path / "a.md").read_bytes())
    assert (document.title, document.text) == (title, text)
    write_documents([CorpusDocument(id="a", text=text)], tmp_path)
    document = MarkdownParser().parse("file:///a.md", (tmp_path / "a.md").read_bytes())
    assert (document.title, document.text) == ("-", text)


def test_lines_end_only_at_line_feeds(tmp_path: Path) -> None:
    row = json.dumps({"_id": "q\u2028", "text": "a\u2028b\x85c"}, ensure_ascii=False)
    (tmp_path / "queries.jsonl").write_text(row + "\r\n", newline="")
    assert read_queries(tmp_path / "queries.jsonl") == {"q\u2028": "a\u2028b\x85c"}
