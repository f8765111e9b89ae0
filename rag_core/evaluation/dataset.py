"""Questions with graded documents: BEIR's layout, and TREC's qrels and runs.

    DIR/corpus.jsonl           one {"_id", "title", "text"} per line; or, instead of it:
    DIR/documents/, DIR/html/  files whose names, without suffix, are the document ids
    DIR/queries.jsonl          one {"_id", "text"} per line; of a conversation, the user's last turn is the question
    DIR/qrels/test.tsv         query id, document id and grade per line, after a header
    DIR/qrels/test.spans.jsonl one {"query_id", "document_id", "start", "end"} per line: the answers, optional

The questions of a split other than `test` can be in `queries_SPLIT.jsonl`. Spans are half-open ranges of code points of
a text in corpus.jsonl. A document with a span has the grade 1 if the qrels, which are then optional, do not grade it.
`answer_layouts` describes the files with reference answers, and the layouts of other datasets.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote, unquote

from rag_core.errors import DatasetError
from rag_core.evaluation.answer_layouts import (
    CLAPNQ_ITEMS,
    SPAN_DOCUMENTS,
    SPAN_QUESTIONS,
    parse_clapnq_passage,
    read_answers,
    read_clapnq_questions,
    read_span_questions,
)
from rag_core.evaluation.dataset_lines import (
    Row,
    add_value,
    number_field,
    read_fields,
    read_json_lines,
    read_unique_rows,
    span_field,
    string_field,
    write_json_lines,
    write_lines,
)
from rag_core.evaluation.metrics import Grades, Scores, rank_ids, relevant_ids
from rag_core.evaluation.question import CorpusDocument, Question
from rag_core.evaluation.spans import Span

Qrels: TypeAlias = Mapping[str, Grades]
"""Grades by document, by question."""
Run: TypeAlias = Mapping[str, Scores]
"""Scores by document, by question."""

DOCUMENT_FOLDERS = ("documents", "html")
CORPUS_FILES = ("corpus.jsonl", SPAN_DOCUMENTS, CLAPNQ_ITEMS)
MAX_NAME_LENGTH = 255
UNTITLED = "-"
"""A title without words."""
QRELS_HEADER = ["query-id", "corpus-id", "score"]
_USER = "|user|:"
"""The mark before every turn of a conversation in MT-RAG's query files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A dataset. `questions` are those with a relevant document, in the order of the file.

    `corpus` is the path of the file with the documents, or of a folder of files. `asked` are the questions whose
    answers can be measured: all but those without a relevant document of which nothing else is known, either.
    `missing` are the graded documents that the corpus does not contain; no question has grades for them. `padding` are
    the corpora of other datasets that are searched, too.
    """

    name: str
    corpus: Path
    questions: tuple[Question, ...]
    asked: tuple[Question, ...] = ()
    missing: tuple[str, ...] = ()
    padding: tuple[Path, ...] = ()

    @property
    def has_history(self) -> bool:
        return any(question.history for question in (*self.questions, *self.asked))

    def limit_questions(self, limit: int | None) -> "Dataset":
        """A copy with the first `limit` questions of each kind; with all of them if it is None."""
        return replace(self, questions=self.questions[:limit], asked=self.asked[:limit])


def read_dataset(folder: Path, split: str = "test") -> Dataset:
    """Reads a dataset. Raises DatasetError for a missing file, and for a line that breaks a rule."""
    all_questions, corpus = read_questions(folder, split), find_corpus(folder)
    stored = read_document_ids(corpus)
    if any(question.spans for question in all_questions):
        _check_spans(chain.from_iterable(question.spans for question in all_questions), corpus)
    existing = [_drop_missing_documents(question, stored) for question in all_questions]
    questions = tuple(question for question in existing if relevant_ids(question.grades))
    if not questions:
        raise DatasetError(f"{folder}: no question has a relevant document in qrels/{split}.tsv")
    is_known = {question.id for question in existing if question.references or question.answerable is not None}
    return Dataset(
        name=folder.resolve().name,
        corpus=corpus,
        questions=questions,
        asked=tuple(question for question in existing if relevant_ids(question.grades) or question.id in is_known),
        missing=tuple(sorted({id for question in all_questions for id in question.grades} - stored)),
    )


def read_questions(folder: Path, split: str = "test") -> list[Question]:
    """All questions, including those that nothing is known about."""
    if (folder / CLAPNQ_ITEMS).is_file():
        return read_clapnq_questions(folder)
    if (folder / SPAN_QUESTIONS).is_file() and (folder / SPAN_DOCUMENTS).is_file():
        return read_span_questions(folder)
    split_queries = folder / f"queries_{split}.jsonl"
    texts = read_queries(split_queries if split_queries.is_file() else folder / "queries.jsonl")
    spans = read_spans(path) if (path := folder / "qrels" / f"{split}.spans.jsonl").is_file() else {}
    qrels_path = folder / "qrels" / f"{split}.tsv"
    graded = read_qrels(qrels_path) if qrels_path.is_file() or not spans else {}
    implied = {query: {span.document: 1 for span in query_spans} for query, query_spans in spans.items()}
    qrels = {query: implied.get(query, {}) | graded.get(query, {}) for query in (graded | implied)}
    if unknown := sorted(qrels.keys() - texts.keys()):
        raise DatasetError(f"{folder}: {len(unknown)} graded questions have no text, the first is {unknown[0]!r}")
    questions = {
        id: Question(id=id, text=text, grades=qrels.get(id, {}), spans=spans.get(id, ())) for id, text in texts.items()
    }
    return read_answers(folder, questions)


def read_corpus(path: Path) -> Iterator[CorpusDocument]:
    parse = parse_clapnq_passage if path.name == CLAPNQ_ITEMS else parse_document
    yield from (parse(location, row) for location, row in read_json_lines(path))


def parse_document(location: str, row: Row) -> CorpusDocument:
    id, text = string_field(location, row, "_id"), string_field(location, row, "text", empty=True)
    return CorpusDocument(id=id, text=text, title=string_field(location, {"title": "", **row}, "title", empty=True))


def read_document_ids(corpus: Path) -> set[str]:
    if corpus.is_dir():
        return {id_from_stem(str(path)) for path in corpus.rglob("*") if path.is_file()}
    return {document.id for document in read_corpus(corpus)}


def read_queries(path: Path) -> dict[str, str]:
    """The texts of the questions, by id."""
    return dict(parse_query(location, row) for location, row in read_unique_rows(path))


def parse_query(location: str, row: Row) -> tuple[str, str]:
    """The id and the text of a question."""
    return string_field(location, row, "_id"), last_turn(string_field(location, row, "text"))


def last_turn(text: str) -> str:
    """The last turn of the user if the text is a conversation, else the text."""
    return text.rpartition(_USER)[2].strip()


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Reads BEIR's three columns under a header, or TREC's four."""
    grades: dict[str, dict[str, int]] = {}
    for index, (location, fields) in enumerate(read_fields(path)):
        if index == 0 and fields == QRELS_HEADER:
            continue
        query, document, grade = parse_grade(location, fields)
        add_value(location, grades, query, document, grade)
    return grades


def parse_grade(location: str, fields: Sequence[str]) -> tuple[str, str, int]:
    """The ids of a question and of a document, and the grade."""
    if len(fields) not in (3, 4):
        raise DatasetError(f"{location}: a line of qrels must have 3 (BEIR) or 4 (TREC) fields, got {len(fields)}")
    return fields[0], fields[-2], number_field(location, int, fields[-1], "a grade must be an integer")


def read_spans(path: Path) -> dict[str, tuple[Span, ...]]:
    """The answer spans, by question."""
    spans: dict[str, tuple[Span, ...]] = {}
    for location, row in read_json_lines(path):
        query, span = parse_span(location, row)
        spans[query] = (*spans.get(query, ()), span)
    return spans


def parse_span(location: str, row: Row) -> tuple[str, Span]:
    """The id of a question, and a span of its answer."""
    query, document = string_field(location, row, "query_id"), string_field(location, row, "document_id")
    return query, span_field(location, row, document)


def read_run(path: Path) -> dict[str, dict[str, float]]:
    """Reads TREC's six columns. The fourth, the rank, is ignored: as in trec_eval, the score decides."""
    run: dict[str, dict[str, float]] = {}
    for location, fields in read_fields(path):
        if len(fields) != 6:
            raise DatasetError(f"{location}: a line of a run must have 6 fields, got {len(fields)}")
        score = number_field(location, float, fields[4], "a score must be a number")
        if not isfinite(score):
            raise DatasetError(f"{location}: a score must be finite, got {fields[4]!r}")
        add_value(location, run, fields[0], fields[2], score)
    return run


def write_dataset(
    folder: Path, corpus: Iterable[CorpusDocument], questions: Sequence[Question], split: str = "test"
) -> None:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    write_corpus(folder, corpus)
    write_queries(folder, {question.id: question.text for question in questions})
    write_grades(folder / "qrels" / f"{split}.tsv", {question.id: question.grades for question in questions})
    spans = [
        {"query_id": question.id, "document_id": span.document, "start": span.start, "end": span.end}
        for question in questions
        for span in question.spans
    ]
    if spans:
        write_json_lines(folder / "qrels" / f"{split}.spans.jsonl", spans)


def write_corpus(folder: Path, corpus: Iterable[CorpusDocument]) -> None:
    documents = ({"_id": document.id, "title": document.title, "text": document.text} for document in corpus)
    write_json_lines(folder / "corpus.jsonl", documents)


def write_queries(folder: Path, texts: Mapping[str, str]) -> None:
    """Writes the texts of questions, by id."""
    write_json_lines(folder / "queries.jsonl", ({"_id": id, "text": text} for id, text in texts.items()))


def write_grades(path: Path, qrels: Qrels) -> None:
    """Writes BEIR's format."""
    grades = ((query, id, str(grade)) for query, by_document in qrels.items() for id, grade in by_document.items())
    write_lines(path, map("\t".join, [QRELS_HEADER, *grades]))


def write_qrels(path: Path, qrels: Qrels) -> None:
    """Writes TREC's format."""
    lines = ((trec_id(query), trec_id(id), grade) for query, grades in qrels.items() for id, grade in grades.items())
    write_lines(path, (f"{query} 0 {id} {grade}" for query, id, grade in lines))


def write_run(path: Path, run: Run, tag: str) -> None:
    """Writes TREC's format, best first. Scores have all their digits, so that they are read unchanged."""
    write_lines(
        path,
        (
            f"{trec_id(query)} Q0 {trec_id(id)} {rank} {scores[id]!r} {trec_id(tag)}"
            for query, scores in run.items()
            for rank, id in enumerate(rank_ids(scores), start=1)
        ),
    )


def trec_id(id: str) -> str:
    """The id with white space, which separates TREC's columns, escaped as in a URL."""
    return "".join(quote(letter) if letter.isspace() else letter for letter in id)


def write_documents(corpus: Iterable[CorpusDocument], folder: Path) -> None:
    """Writes the corpus as Markdown files, and deletes the other Markdown files of the folder.

    A file that already has the right contents is not written again. The title is front matter, so that it becomes the
    document's title without being part of the text. A document without one gets `UNTITLED`: its title would otherwise
    be the file name, and ids would be searched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    existing, written = {path.name for path in folder.glob("*.md")}, set[str]()
    for document in corpus:
        name, title = file_name(document.id), document.title.strip() or UNTITLED
        body = f"---\ntitle: {json.dumps(title, ensure_ascii=False)}\n---\n{document.text}".encode()
        if name in written:
            raise DatasetError(f"duplicate document id {document.id!r}")
        if name not in existing or (folder / name).read_bytes() != body:
            (folder / name).write_bytes(body)
        written.add(name)
    for name in existing - written:
        (folder / name).unlink()


def folder_name(collection: str) -> str:
    """The name of the folder for a collection's corpus. It is not a path: `write_documents` deletes files there."""
    is_name = Path(collection).name == collection != ".." and not {"%", "\0"} & set(collection)
    name = collection if is_name else quote(collection, safe="").replace(".", "%2E")
    if len(name.encode()) > MAX_NAME_LENGTH:
        rule = f"the name of a collection must fit into a folder name of {MAX_NAME_LENGTH} bytes"
        raise DatasetError(f"{rule}, got {collection!r}")
    return name


def file_name(id: str) -> str:
    """The file name of a document; `id_from_file_name` is the inverse."""
    name = f"{quote(id, safe='')}.md"
    if len(name) > MAX_NAME_LENGTH:
        raise DatasetError(f"a document id must fit into a file name of {MAX_NAME_LENGTH} characters, got {id!r}")
    return name


def id_from_file_name(path: str) -> str:
    """The id of a document that `write_documents` wrote."""
    return unquote(Path(path).stem)


def id_from_stem(path: str) -> str:
    """The id of a document of the dataset's own files."""
    return Path(path).stem


def _drop_missing_documents(question: Question, stored: Set[str]) -> Question:
    """A copy without the grades and spans of documents that are not in the corpus."""
    grades = {id: grade for id, grade in question.grades.items() if id in stored}
    return replace(question, grades=grades, spans=tuple(span for span in question.spans if span.document in stored))


def _check_spans(spans: Iterable[Span], corpus: Path) -> None:
    """Raises DatasetError for a span that is not within a text of corpus.jsonl. Its document can be missing."""
    if corpus.is_dir():
        raise DatasetError(f"{corpus.parent}: answer spans require corpus.jsonl, got a corpus in {corpus.name}/")
    lengths = {document.id: len(document.text) for document in read_corpus(corpus)}
    for span in spans:
        if span.end > (length := lengths.get(span.document, span.end)):
            actual = f"{span.start} to {span.end} of document {span.document!r}"
            raise DatasetError(f"a span must be within the {length} characters of its document, got {actual}")


def find_corpus(folder: Path) -> Path:
    """The dataset's files before its corpus.jsonl: files also go through the parsers."""
    for name in (*DOCUMENT_FOLDERS, *CORPUS_FILES):
        if (path := folder / name).exists():
            return path
    raise DatasetError(f"{folder} has no corpus.jsonl, and none of the folders {', '.join(DOCUMENT_FOLDERS)}")
