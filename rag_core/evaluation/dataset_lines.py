"""The lines of a dataset's files. A line that breaks a rule raises DatasetError with its location, `file:line`."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from rag_core.errors import DatasetError
from rag_core.evaluation.spans import Span

Value = TypeVar("Value", int, float)
Item = TypeVar("Item", str, dict[str, Any])
Row: TypeAlias = Mapping[str, Any]

JSON_NAMES: Mapping[type, str] = {str: "strings", dict: "objects"}

_SURROGATE = re.compile("[\ud800-\udfff]")


def read_json_lines(path: Path) -> Iterator[tuple[str, Row]]:
    yield from ((location, parse_row(location, line)) for location, line in read_lines(path))


def read_unique_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yields the rows of a file of questions. Raises DatasetError if two have the same id."""
    ids = set[str]()
    for location, row in read_json_lines(path):
        id = string_field(location, row, "_id")
        if id in ids:
            raise DatasetError(f"{location}: duplicate question id {id!r}")
        ids.add(id)
        yield location, row


def parse_row(location: str, line: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DatasetError(f"{location}: a line must be one JSON object: {error}") from None
    if not isinstance(row, dict):
        raise DatasetError(f"{location}: a line must be one JSON object, got {line!r:.60}")
    return row


def read_fields(path: Path) -> Iterator[tuple[str, list[str]]]:
    yield from ((location, split_fields(line)) for location, line in read_lines(path))


def split_fields(line: str) -> list[str]:
    return line.split("\t") if line.count("\t") == 2 else line.split()


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the location, as `file:line`, and the text of each line that is not empty.

    Only line feeds end a line: strings in JSON can contain the other line separators.
    """
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line_number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"{path}:{line_number}", line.rstrip("\r\n")
    except OSError as error:
        raise DatasetError(
            f"{path} cannot be read: {error.strerror}; a dataset is a folder with corpus.jsonl or corpus/, "
            "queries.jsonl and qrels/"
        ) from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8: {error}") from error


def string_field(location: str, row: Row, key: str, empty: bool = False) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not (value.strip() or empty):
        kind = "a string" if empty else "a string that is not empty"
        raise DatasetError(f"{location}: {key!r} must be {kind}, got {value!r:.60}")
    if _SURROGATE.search(value):
        raise DatasetError(f"{location}: {key!r} must be Unicode text, got half a surrogate pair")
    return value


def list_field(location: str, row: Row, key: str, kind: type[Item]) -> list[Item]:
    """The list of the row; empty if the row has none."""
    items = row.get(key, [])
    if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
        raise DatasetError(f"{location}: {key!r} must be a list of JSON {JSON_NAMES[kind]}, got {items!r:.60}")
    return items


def span_field(location: str, row: Row, document: str) -> Span:
    start, end = row.get("start"), row.get("end")
    if type(start) is not int or type(end) is not int or not 0 <= start < end:
        rule = "start and end of a span must be integers with 0 <= start < end"
        raise DatasetError(f"{location}: {rule}, got {start!r} and {end!r}")
    return Span(document=document, start=start, end=end)


def number_field(location: str, kind: Callable[[str], Value], text: str, rule: str) -> Value:
    try:
        return kind(text)
    except ValueError:
        raise DatasetError(f"{location}: {rule}, got {text!r}") from None


def add_value(location: str, table: dict[str, dict[str, Value]], query: str, id: str, value: Value) -> None:
    row = table.setdefault(query, {})
    if id in row:
        raise DatasetError(f"{location}: duplicate document {id!r} for question {query!r}")
    row[id] = value


def write_json_lines(path: Path, rows: Iterable[Row]) -> None:
    write_lines(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
