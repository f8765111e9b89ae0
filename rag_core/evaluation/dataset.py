"""Questions with graded documents: BEIR's layout, and TREC's qrels and runs.

    DIR/corpus.jsonl           {"_id", "title", "text"} a line, or in its place
    DIR/documents/, DIR/html/  files whose names, without suffix, are the document ids
    DIR/queries.jsonl          {"_id", "text"} a line; of a conversation the last turn of the user is the question
    DIR/qrels/test.tsv         query id, document id, grade, under a header
    DIR/qrels/test.spans.jsonl {"query_id", "document_id", "start", "end"} a line: where answers stand, optional

A question of another split than `test` may stand in `queries_SPLIT.jsonl`. Spans are in code points of a text in
corpus.jsonl, half open. A document with a span has the grade 1 where qrels, which may be absent then, give none.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, unquote

from rag_core.errors import DatasetError
from rag_core.evaluation.metrics import Grades, Scores, ranked, relevant
from rag_core.evaluation.spans import Span

Value = TypeVar("Value", int, float)
Qrels: TypeAlias = Mapping[str, Grades]
"""Grades by document, by question."""
Run: TypeAlias = Mapping[str, Scores]
"""Scores by document, by question."""

FOLDERS = ("documents", "html")
LONGEST_NAME = 255
UNTITLED = "-"
"""A title without a word."""
HEADER = ["query-id", "corpus-id", "score"]
_SURROGATE = re.compile("[\ud800-\udfff]")
_USER = "|user|:"
"""Before every turn of a conversation in MT-RAG's query files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    id: str
    text: str
    grades: Grades
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusDocument:
    """A document as a dataset gives it."""

    id: str
    text: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """`questions` are those with a relevant document, in the order of their file. `corpus` is a file or a folder."""

    name: str
    corpus: Path
    questions: tuple[Question, ...]

    def first(self, limit: int | None) -> "Dataset":
        """With all its questions if there is no limit."""
        return replace(self, questions=self.questions[:limit])


def read_dataset(folder: Path, split: str = "test") -> Dataset:
    """DatasetError for what is not there, and for a line that breaks a rule."""
    own = folder / f"queries_{split}.jsonl"
    texts = read_queries(own if own.is_file() else folder / "queries.jsonl")
    spans = read_spans(path) if (path := folder / "qrels" / f"{split}.spans.jsonl").is_file() else {}
    qrels = _grades(folder / "qrels" / f"{split}.tsv", spans)
    if strange := sorted(qrels.keys() - texts.keys()):
        raise DatasetError(f"{folder}: {len(strange)} graded questions have no text, the first is {strange[0]!r}")
    questions = [
        Question(id=id, text=text, grades=qrels.get(id, {}), spans=spans.get(id, ())) for id, text in texts.items()
    ]
    graded = tuple(question for question in questions if relevant(question.grades))
    if not graded:
        raise DatasetError(f"{folder}: no question has a relevant document in qrels/{split}.tsv")
    corpus = _corpus(folder)
    if spans:
        _refuse_elsewhere(chain.from_iterable(spans.values()), corpus)
    return Dataset(name=folder.resolve().name, corpus=corpus, questions=graded)


def read_corpus(path: Path) -> Iterator[CorpusDocument]:
    for place, row in _json_lines(path):
        id, text = _string(place, row, "_id"), _string(place, row, "text", empty=True)
        yield CorpusDocument(id=id, text=text, title=_string(place, {"title": "", **row}, "title", empty=True))


def read_queries(path: Path) -> dict[str, str]:
    """Texts by id."""
    texts: dict[str, str] = {}
    for place, row in _json_lines(path):
        id = _string(place, row, "_id")
        if id in texts:
            raise DatasetError(f"{place}: ids must be unique, got {id!r} again")
        texts[id] = last_turn(_string(place, row, "text"))
    return texts


def last_turn(text: str) -> str:
    """What the user said last, where the text is a conversation; else the text."""
    return text.rpartition(_USER)[2].strip()


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """BEIR's three columns under a header, or TREC's four."""
    grades: dict[str, dict[str, int]] = {}
    for number, (place, fields) in enumerate(_fields(path)):
        if number == 0 and fields == HEADER:
            continue
        if len(fields) not in (3, 4):
            raise DatasetError(f"{place}: a grade has 3 (BEIR) or 4 (TREC) fields, got {len(fields)}")
        grade = _number(place, int, fields[-1], "a grade is a whole number")
        _put(place, grades, fields[0], fields[-2], grade)
    return grades


def read_spans(path: Path) -> dict[str, tuple[Span, ...]]:
    """By question."""
    spans: dict[str, tuple[Span, ...]] = {}
    for place, row in _json_lines(path):
        query, document = _string(place, row, "query_id"), _string(place, row, "document_id")
        start, end = row.get("start"), row.get("end")
        if type(start) is not int or type(end) is not int or not 0 <= start < end:
            raise DatasetError(f"{place}: a span has whole numbers 0 <= start < end, got {start!r} and {end!r}")
        spans[query] = (*spans.get(query, ()), Span(document=document, start=start, end=end))
    return spans


def read_run(path: Path) -> dict[str, dict[str, float]]:
    """TREC's six columns. The fourth, the rank, counts for nothing: as for trec_eval, the score does."""
    run: dict[str, dict[str, float]] = {}
    for place, fields in _fields(path):
        if len(fields) != 6:
            raise DatasetError(f"{place}: a line of a run has 6 fields, got {len(fields)}")
        score = _number(place, float, fields[4], "a score is a number")
        if not isfinite(score):
            raise DatasetError(f"{place}: a score is finite, got {fields[4]!r}")
        _put(place, run, fields[0], fields[2], score)
    return run


def write_dataset(
    folder: Path, corpus: Iterable[CorpusDocument], questions: Sequence[Question], split: str = "test"
) -> None:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    rows = ({"_id": each.id, "title": each.title, "text": each.text} for each in corpus)
    _write(folder / "corpus.jsonl", (json.dumps(row, ensure_ascii=False) for row in rows))
    texts = ({"_id": each.id, "text": each.text} for each in questions)
    _write(folder / "queries.jsonl", (json.dumps(row, ensure_ascii=False) for row in texts))
    grades = ((each.id, id, str(grade)) for each in questions for id, grade in each.grades.items())
    _write(folder / "qrels" / f"{split}.tsv", map("\t".join, [HEADER, *grades]))
    spans = [
        {"query_id": each.id, "document_id": span.document, "start": span.start, "end": span.end}
        for each in questions
        for span in each.spans
    ]
    if spans:
        _write(folder / "qrels" / f"{split}.spans.jsonl", (json.dumps(row, ensure_ascii=False) for row in spans))


def write_qrels(path: Path, qrels: Qrels) -> None:
    """As TREC has it."""
    lines = ((trec_id(query), trec_id(id), grade) for query, grades in qrels.items() for id, grade in grades.items())
    _write(path, (f"{query} 0 {id} {grade}" for query, id, grade in lines))


def write_run(path: Path, run: Run, tag: str) -> None:
    """As TREC has it, best first; scores are written in full, so that they are read as they were."""
    _write(
        path,
        (
            f"{trec_id(query)} Q0 {trec_id(id)} {rank} {scores[id]!r} {trec_id(tag)}"
            for query, scores in run.items()
            for rank, id in enumerate(ranked(scores), start=1)
        ),
    )


def trec_id(id: str) -> str:
    """White space, which separates TREC's columns, as in a URL."""
    return "".join(quote(letter) if letter.isspace() else letter for letter in id)


def write_documents(corpus: Iterable[CorpusDocument], folder: Path) -> None:
    """The corpus as Markdown files, and no others, in the folder; a file that is as it should be is left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    there, written = {path.name for path in folder.glob("*.md")}, set[str]()
    for document in corpus:
        name, body = file_name(document.id), _markdown(document).encode()
        if name in written:
            raise DatasetError(f"ids of documents must be unique, got {document.id!r} again")
        if name not in there or (folder / name).read_bytes() != body:
            (folder / name).write_bytes(body)
        written.add(name)
    for name in there - written:
        (folder / name).unlink()


def folder_name(collection: str) -> str:
    """Of its corpus as files: no path, because `write_documents` deletes what it finds there."""
    plain = Path(collection).name == collection != ".." and not {"%", "\0"} & set(collection)
    name = collection if plain else quote(collection, safe="").replace(".", "%2E")
    if len(name.encode()) > LONGEST_NAME:
        raise DatasetError(f"a collection must fit into a folder's name of {LONGEST_NAME} bytes, got {collection!r}")
    return name


def file_name(id: str) -> str:
    """What `written_id` reads back."""
    name = f"{quote(id, safe='')}.md"
    if len(name) > LONGEST_NAME:
        raise DatasetError(f"a document id must fit into a file name of {LONGEST_NAME} characters, got {id!r}")
    return name


def written_id(path: str) -> str:
    return unquote(Path(path).stem)


def named_id(path: str) -> str:
    return Path(path).stem


def _grades(path: Path, spans: Mapping[str, Sequence[Span]]) -> dict[str, dict[str, int]]:
    given = read_qrels(path) if path.is_file() or not spans else {}
    implied = {query: {span.document: 1 for span in each} for query, each in spans.items()}
    return {query: implied.get(query, {}) | given.get(query, {}) for query in (given | implied)}


def _refuse_elsewhere(spans: Iterable[Span], corpus: Path) -> None:
    """Spans that are not within a text of the dataset. A document may be missing, as for grades."""
    if corpus.is_dir():
        raise DatasetError(f"{corpus.parent}: spans are of texts in corpus.jsonl, got a corpus in {corpus.name}/")
    lengths = {document.id: len(document.text) for document in read_corpus(corpus)}
    for span in spans:
        if span.end > (length := lengths.get(span.document, span.end)):
            place = f"got {span.start} to {span.end} of document {span.document!r}"
            raise DatasetError(f"a span must lie within its document's {length} characters, {place}")


def _corpus(folder: Path) -> Path:
    """Files before lines: they go through the parsers, too."""
    for path in (*(folder / name for name in FOLDERS), folder / "corpus.jsonl"):
        if path.exists():
            return path
    raise DatasetError(f"{folder} has no corpus.jsonl, and none of the folders {', '.join(FOLDERS)}")


def _markdown(document: CorpusDocument) -> str:
    """The title as front matter: it becomes the document's, and no part of the text.

    Without one the file's name would be its title, and ids would be searched.
    """
    title = document.title.strip() or UNTITLED
    return f"---\ntitle: {json.dumps(title, ensure_ascii=False)}\n---\n{document.text}"


def _json_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for place, line in _lines(path):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DatasetError(f"{place}: a line is one JSON object: {error}") from None
        if not isinstance(row, dict):
            raise DatasetError(f"{place}: a line is one JSON object, got {line!r:.60}")
        yield place, row


def _fields(path: Path) -> Iterator[tuple[str, list[str]]]:
    for place, line in _lines(path):
        yield place, line.split("\t") if line.count("\t") == 2 else line.split()


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Each that is not empty, with its place as `file:number`. Only line feeds end lines: JSON may hold the others."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"{path}:{number}", line.rstrip("\r\n")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8: {error}") from error


def _string(place: str, row: Mapping[str, Any], key: str, empty: bool = False) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not (value.strip() or empty):
        raise DatasetError(f"{place}: {key!r} must be a text{'' if empty else ' that is not empty'}, got {value!r:.60}")
    if _SURROGATE.search(value):
        raise DatasetError(f"{place}: {key!r} must be Unicode text, got half a surrogate pair")
    return value


def _number(place: str, kind: Callable[[str], Value], text: str, rule: str) -> Value:
    try:
        return kind(text)
    except ValueError:
        raise DatasetError(f"{place}: {rule}, got {text!r}") from None


def _put(place: str, table: dict[str, dict[str, Value]], query: str, id: str, value: Value) -> None:
    row = table.setdefault(query, {})
    if id in row:
        raise DatasetError(f"{place}: a document stands once for a question, got {id!r} again for {query!r}")
    row[id] = value


def _write(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
