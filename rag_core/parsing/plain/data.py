"""JSON and JSON Lines as Markdown: nested keys are headings, flat objects of one shape are a table."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import Block, clean_text, heading, join_blocks, list_item, paragraph
from rag_core.parsing.encoding import decode_text
from rag_core.parsing.outline import with_outline
from rag_core.parsing.tables import table
from rag_core.types import Document

VERSION = 2

Json: TypeAlias = dict[str, Any] | list[Any] | str | bool | None

_TITLE_KEYS = ("title", "name", "headline")
_LABEL_KEYS = (*_TITLE_KEYS, "subject", "label", "id")
_MAX_TITLE_CHARS = 200
_MAX_CELL_CHARS = 200
_MAX_COLUMNS = 50
# Deeper values are written on one line: each further level would be indented, and headings end at the sixth level
_MAX_LEVEL = 6


class DataParser:
    def parse(self, uri: str, body: bytes) -> Document:
        text = decode_text(body)
        try:
            value = _load(text)
            markdown = join_blocks(_value_blocks(value, 1))
        except RecursionError as error:
            raise DocumentError("parse", "damaged JSON: nested too deep") from error
        title = _find_title(value, _TITLE_KEYS)
        document = Document(uri=uri, text=markdown, title=title, media_type="application/json")
        return replace(with_outline(document), title=title)


def is_parsable_json(body: bytes) -> bool:
    """True if the body is JSON or JSON Lines, including JSON that is nested too deep."""
    try:
        _load(decode_text(body))
    except DocumentError:
        return False
    except RecursionError:
        return True
    return True


def _load(text: str) -> Json:
    """The value, or the list of the lines' values. Numbers stay as they are written."""
    try:
        return _load_value(text)
    except ValueError as error:
        if not _is_json_lines(text):
            raise DocumentError("parse", f"damaged JSON: {error}") from error
    values: list[Json] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                values.append(_load_value(line))
            except ValueError as error:
                raise DocumentError("parse", f"damaged JSON: line {number}: {error}") from error
    return values


def _is_json_lines(text: str) -> bool:
    """True if there are several lines and the first is an object or a list."""
    first, newline, _ = text.strip().partition("\n")
    try:
        return bool(newline) and isinstance(_load_value(first), dict | list)
    except ValueError:
        return False


def _load_value(text: str) -> Json:
    value: Json = json.loads(
        text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_merge_duplicates
    )
    return value


def _merge_duplicates(members: list[tuple[str, Json]]) -> Json:
    """The object; the values of a duplicate key become a list."""
    merged = dict(members)
    if len(merged) == len(members):
        return merged
    values_by_key: defaultdict[str, list[Json]] = defaultdict(list)
    for key, value in members:
        values_by_key[key].append(value)
    return {key: values[0] if len(values) == 1 else values for key, values in values_by_key.items()}


def _value_blocks(value: Json, level: int) -> Iterator[Block]:
    match value:
        case dict() if level <= _MAX_LEVEL:
            yield from _object_blocks(value, level)
        case list() if _is_table(value):
            columns = list(dict.fromkeys(key for row in value for key in row))
            yield table([columns, *([_value_text(row.get(column)) for column in columns] for row in value)])
        case list() if level <= _MAX_LEVEL:
            # simple values first, as in _object_blocks
            yield from (list_item(_value_text(element)) for element in value if not isinstance(element, dict | list))
            for number, element in enumerate(value, start=1):
                if isinstance(element, dict | list):
                    yield heading(level, _find_title(element, _LABEL_KEYS) or str(number))
                    yield from _value_blocks(element, level + 1)
        case dict() | list():
            yield paragraph(json.dumps(value, ensure_ascii=False))
        case _:
            yield paragraph(_value_text(value))


def _object_blocks(members: Mapping[str, Json], level: int) -> Iterator[Block]:
    """Simple values first: below the heading of a nested value they would belong to it."""
    for key, value in members.items():
        if isinstance(value, dict | list):
            continue
        text = _value_text(value)
        if "\n" in text.strip():
            yield paragraph(f"{key}:")
            yield paragraph(text)
        elif text:
            yield list_item(f"{key}: {text}")
    for key, value in members.items():
        if not isinstance(value, dict | list) or not value:
            continue
        is_flat_list = isinstance(value, list) and not any(isinstance(element, dict | list) for element in value)
        if is_flat_list and sum(len(_value_text(element)) for element in value) <= _MAX_CELL_CHARS:
            yield list_item(f"{key}: {', '.join(map(_value_text, value))}")
        else:
            yield heading(level, key)
            yield from _value_blocks(value, level + 1)


def _is_table(elements: list[Any]) -> bool:
    """True if the elements are objects that mostly share their keys and have short, simple values."""
    if len(elements) < 2 or not all(isinstance(element, dict) for element in elements):
        return False
    values = (value for element in elements for value in element.values())
    if any(isinstance(value, dict | list) or len(_value_text(value)) > _MAX_CELL_CHARS for value in values):
        return False
    columns = {key for element in elements for key in element}
    filled = sum(map(len, elements))
    return 0 < len(columns) <= _MAX_COLUMNS and filled * 2 >= len(columns) * len(elements)


def _value_text(value: Json) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def _find_title(value: Json, keys: Sequence[str]) -> str:
    """The first of the keys' values that can be a title; empty if there is none."""
    if not isinstance(value, dict):
        return ""
    titles = (clean_text(" ".join(name.split())) for key in keys if isinstance(name := value.get(key), str))
    return next((title for title in titles if 0 < len(title) <= _MAX_TITLE_CHARS), "")
