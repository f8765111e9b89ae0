"""A TREC collection: documents, topics and qrels, in three files of a folder.

Documents and topics are tagged, as `<DOC> <DOCNO>1</DOCNO> <TEXT>...</TEXT> </DOC>` and `<top> <num> Number: 301
<title> ... </top>`, or have an id and a text per line, separated by a tab. Of a topic, the title is the question.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from rag_core.errors import DatasetError
from rag_core.evaluation.dataset import read_qrels
from rag_core.evaluation.dataset_lines import read_lines
from rag_core.evaluation.imports.imported_dataset import ImportedDataset
from rag_core.evaluation.question import CorpusDocument

DOCUMENTS, TOPICS, QRELS = ("docs*", "documents*", "corpus*"), ("topics*", "queries*"), ("qrels*",)

_ID = re.compile(r"<docno>(.*?)</docno>", re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r"<(title|headline)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
_TEXT = re.compile(r"<text>(.*?)</text>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]+>")
_NUMBER = re.compile(r"<num>\s*(?:Number:)?\s*([^\s<]+)", re.IGNORECASE)
_QUESTION = re.compile(r"<title>\s*(?:Topic:)?([^<]*)", re.IGNORECASE)


def read_trec(source: Path) -> ImportedDataset:
    documents, topics, qrels = (_find_file(source, patterns) for patterns in (DOCUMENTS, TOPICS, QRELS))
    queries: dict[str, str] = {}
    for location, id, text in _read_topics(topics):
        if id in queries:
            raise DatasetError(f"{location}: duplicate question id {id!r}")
        queries[id] = text
    return ImportedDataset(corpus=list(_read_documents(documents)), queries=queries, qrels={"test": read_qrels(qrels)})


def _find_file(source: Path, patterns: tuple[str, ...]) -> Path:
    """The only file whose name matches one of the patterns."""
    files = sorted(path for pattern in patterns for path in source.glob(pattern) if path.is_file())
    if len(files) != 1:
        names = ", ".join(path.name for path in files) or "none"
        raise DatasetError(f"{source} must contain one file named {' or '.join(patterns)}, got {names}")
    return files[0]


def _read_documents(path: Path) -> Iterator[CorpusDocument]:
    if not _is_tagged(path):
        yield from (CorpusDocument(id=id, text=text) for _, id, text in _read_columns(path))
        return
    for location, record in _read_records(path, "doc"):
        number, title = _ID.search(record), _TITLE.search(record)
        if not number or not number[1].strip():
            raise DatasetError(f"{location}: a document must have a <DOCNO>")
        text = "\n".join(_TEXT.findall(record)) or _TITLE.sub("", _ID.sub("", record))
        yield CorpusDocument(
            id=number[1].strip(), text=_remove_tags(text), title=_remove_tags(title[2]) if title else ""
        )


def _read_topics(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yields the location, the id and the question of each topic."""
    if not _is_tagged(path):
        yield from _read_columns(path)
        return
    for location, record in _read_records(path, "top"):
        number, title = _NUMBER.search(record), _QUESTION.search(record)
        if not number or not title or not title[1].strip():
            raise DatasetError(f"{location}: a topic must have a <num>, and a <title> with words")
        yield location, number[1], " ".join(title[1].split())


def _is_tagged(path: Path) -> bool:
    return any(line.lstrip().startswith("<") for _, line in islice(read_lines(path), 1))


def _read_columns(path: Path) -> Iterator[tuple[str, str, str]]:
    for location, line in read_lines(path):
        id, tab, text = line.partition("\t")
        if not tab or not id.strip() or not text.strip():
            raise DatasetError(f"{location}: a line must be an id and a text, separated by a tab, got {line!r:.60}")
        yield location, id.strip(), text.strip()


def _read_records(path: Path, tag: str) -> Iterator[tuple[str, str]]:
    """Yields the text between each `<tag>` and `</tag>`, with the location of the former."""
    begin, end = f"<{tag}>", f"</{tag}>"
    tags = re.compile(f"({begin}|{end})", re.IGNORECASE)
    started, parts = "", list[str]()
    for location, line in read_lines(path):
        for part in tags.split(f"{line}\n"):
            if part.lower() == begin:
                if started:
                    raise DatasetError(f"{started}: {begin} must end with {end} before the next one")
                started, parts = location, []
            elif part.lower() == end:
                if not started:
                    raise DatasetError(f"{location}: {end} must follow {begin}")
                yield started, "".join(parts)
                started = ""
            else:
                parts.append(part)
    if started:
        raise DatasetError(f"{started}: {begin} must end with {end}")


def _remove_tags(text: str) -> str:
    return _TAG.sub("", text).strip()
