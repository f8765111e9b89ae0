"""JSON and JSON Lines as Markdown: nested keys are headings, flat objects of one shape are a table."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import Block, clean, heading, joined, listed, paragraph
from rag_core.parsing.encoding import decoded
from rag_core.parsing.outline import outlined
from rag_core.parsing.tables import table
from rag_core.types import Document

VERSION = 2

Json: TypeAlias = dict[str, Any] | list[Any] | str | bool | None

_TITLES = ("title", "name", "headline")
_LABELS = (*_TITLES, "subject", "label", "id")
_LONGEST_TITLE = 200
_LONGEST_CELL = 200
_MOST_COLUMNS = 50
# Below this everything stands on one line: each further level would indent, and headings end at the sixth
_DEEPEST = 6


class DataParser:
    def parse(self, uri: str, body: bytes) -> Document:
        text = decoded(body)
        try:
            value = _read(text)
            written = joined(_blocks(value, 1))
        except RecursionError as error:
            raise DocumentError("parse", "damaged JSON: nested too deep") from error
        document = Document(uri=uri, text=written, title=_title(value), media_type="application/json")
        return replace(outlined(document), title=document.title)


def readable(body: bytes) -> bool:
    """Also what is only nested too deep."""
    try:
        _read(decoded(body))
    except DocumentError:
        return False
    except RecursionError:
        return True
    return True


def _read(text: str) -> Json:
    """Numbers stay as they are written."""
    try:
        return _value(text)
    except ValueError as error:
        if not _is_lines(text):
            raise DocumentError("parse", f"damaged JSON: {error}") from error
    return [_line(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]


def _value(text: str) -> Json:
    value: Json = json.loads(text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_object)
    return value


def _object(members: list[tuple[str, Json]]) -> Json:
    """The values of a key that is there several times are its list."""
    found = dict(members)
    if len(found) < len(members):
        said: defaultdict[str, list[Json]] = defaultdict(list)
        for key, value in members:
            said[key].append(value)
        return {key: values[0] if len(values) == 1 else values for key, values in said.items()}
    return found


def _is_lines(text: str) -> bool:
    first, newline, _ = text.strip().partition("\n")
    try:
        return bool(newline) and isinstance(_value(first), dict | list)
    except ValueError:
        return False


def _line(number: int, line: str) -> Json:
    try:
        return _value(line)
    except ValueError as error:
        raise DocumentError("parse", f"damaged JSON: line {number}: {error}") from error


def _blocks(value: Json, level: int) -> Iterator[Block]:
    match value:
        case dict() if level <= _DEEPEST:
            yield from _members(value, level)
        case list() if _is_table(value):
            yield table(_rows(value))
        case list() if level <= _DEEPEST:
            yield from _elements(value, level)
        case dict() | list():
            yield paragraph(json.dumps(value, ensure_ascii=False))
        case _:
            yield paragraph(_said(value))


def _members(members: Mapping[str, Json], level: int) -> Iterator[Block]:
    """What is plain first: under a heading it would belong to that."""
    for key, value in members.items():
        if not isinstance(value, dict | list):
            yield from _member(key, _said(value))
    for key, value in members.items():
        if isinstance(value, dict | list) and value:
            yield from _nested(key, value, level)


def _member(key: str, said: str) -> Iterator[Block]:
    if "\n" in said.strip():
        yield paragraph(f"{key}:")
        yield paragraph(said)
    elif said:
        yield listed(f"{key}: {said}")


def _nested(key: str, value: Json, level: int) -> Iterator[Block]:
    if isinstance(value, list) and _is_plain(value) and sum(len(_said(each)) for each in value) <= _LONGEST_CELL:
        yield listed(f"{key}: {', '.join(map(_said, value))}")
        return
    yield heading(level, key)
    yield from _blocks(value, level + 1)


def _elements(elements: Sequence[Json], level: int) -> Iterator[Block]:
    """What is plain first, as in `_members`."""
    for each in elements:
        if not isinstance(each, dict | list):
            yield listed(_said(each))
    for number, each in enumerate(elements, start=1):
        if isinstance(each, dict | list):
            yield heading(level, _title(each, _LABELS) or str(number))
            yield from _blocks(each, level + 1)


def _is_plain(elements: Sequence[Json]) -> bool:
    return not any(isinstance(each, dict | list) for each in elements)


def _is_table(elements: list[Any]) -> bool:
    """Objects that mostly share their keys, with short values that are not nested themselves."""
    if len(elements) < 2 or not all(isinstance(each, dict) and _is_row(each) for each in elements):
        return False
    columns = {key for each in elements for key in each}
    filled = sum(map(len, elements))
    return 0 < len(columns) <= _MOST_COLUMNS and filled * 2 >= len(columns) * len(elements)


def _is_row(member: Mapping[str, Json]) -> bool:
    return all(not isinstance(value, dict | list) and len(_said(value)) <= _LONGEST_CELL for value in member.values())


def _rows(elements: Sequence[Mapping[str, Json]]) -> list[list[str]]:
    columns = list(dict.fromkeys(key for each in elements for key in each))
    return [columns, *([_said(each.get(column)) for column in columns] for each in elements)]


def _said(value: Json) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def _title(value: Json, keys: Sequence[str] = _TITLES) -> str:
    if not isinstance(value, dict):
        return ""
    named = (clean(" ".join(name.split())) for key in keys if isinstance(name := value.get(key), str))
    return next((name for name in named if 0 < len(name) <= _LONGEST_TITLE), "")
