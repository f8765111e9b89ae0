"""Filters on metadata, from JSON to SQL. The grammar is that of OpenAI's vector stores:
`{"key": "language", "type": "eq", "value": "en"}`, combined by `{"type": "and" | "or", "filters": [...]}`.

`page` and `section` are compared with the chunk's own, every other key with its document's metadata.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from psycopg.sql import SQL, Composable, Composed, Identifier, Placeholder

from rag_core.errors import FilterError
from rag_core.types import UNSTORABLE, Comparison, Compound, Filter, Value

OPERATORS = {"gt": SQL(">"), "gte": SQL(">="), "lt": SQL("<"), "lte": SQL("<=")}
LARGEST = 1e308
COMPARISONS = ("eq", "ne", "in", "nin", *OPERATORS)
DOCUMENTS_WITH = SQL(
    "(select f.document_id from document_values f where f.tenant = %(tenant)s and f.collection = %(collection_id)s "
    "and f.key = {key} and f.{column} {condition})"
)
CHUNK_KEYS = {"page": SQL("k.page"), "section": SQL("k.metadata ->> 'section'")}
CHUNKS_WITH = SQL(
    "(select k.id from chunks k where k.tenant = %(tenant)s and k.collection = %(collection_id)s and {condition})"
)


@dataclass(frozen=True, slots=True)
class _Subjects:
    """The columns of the statement that hold the ids of what is filtered."""

    document: Composable
    chunk: Composable


def parsed_filter(value: object) -> Filter:
    """From its JSON. FilterError names what the grammar does not allow."""
    if not isinstance(value, Mapping):
        raise FilterError(f"a filter is an object with `type`, got {value!r}")
    if value.get("type") in ("and", "or"):
        return _compound(value)
    return _comparison(value)


def chunk_filter(filter: Filter | None, document: str, chunk: str) -> tuple[Composable, dict[str, Any]]:
    """The condition that holds where a chunk passes, and the parameters that it needs.

    `document` and `chunk` are the columns that hold the ids, such as `v.chunk_id`.
    """
    parameters: dict[str, Any] = {}
    subjects = _Subjects(Identifier(*document.split(".")), Identifier(*chunk.split(".")))
    return (_condition(filter, subjects, parameters, count()) if filter else SQL("true")), parameters


def compares_chunks(filter: Filter) -> bool:
    """Whether it asks for anything of the chunks themselves."""
    if isinstance(filter, Compound):
        return any(compares_chunks(each) for each in filter.filters)
    return filter.key in CHUNK_KEYS


def _compound(value: Mapping[str, Any]) -> Compound:
    _expect_keys(value, {"type", "filters"})
    filters = value["filters"]
    if not isinstance(filters, list) or not filters:
        raise FilterError(f"`filters` of {value['type']!r} must be a non-empty list, got {filters!r}")
    return Compound(type=value["type"], filters=tuple(parsed_filter(each) for each in filters))


def _comparison(value: Mapping[str, Any]) -> Comparison:
    _expect_keys(value, {"type", "key", "value"})
    if value["type"] not in COMPARISONS:
        raise FilterError(
            f"a filter's type must be one of {', '.join((*COMPARISONS, 'and', 'or'))}, got {value['type']!r}"
        )
    if not isinstance(value["key"], str) or not value["key"] or not storable(value["key"]):
        raise FilterError(f"a filter's key must be a non-empty string that can be stored, got {value['key']!r}")
    _check_operand(value["type"], value["value"])
    return Comparison(key=value["key"], type=value["type"], value=value["value"])


def _expect_keys(value: Mapping[str, Any], expected: set[str]) -> None:
    if set(value) != expected:
        raise FilterError(
            f"a filter of type {value.get('type')!r} has the keys {sorted(expected)}, got {sorted(value)}"
        )


def _check_operand(type: str, operand: object) -> None:
    if type in ("in", "nin"):
        if not isinstance(operand, list) or not operand or not all(map(storable, operand)):
            raise FilterError(
                f"the value of {type!r} must be a non-empty list of strings, numbers or booleans, got {operand!r}"
            )
        if len({isinstance(each, str) + 2 * isinstance(each, bool) for each in operand}) > 1:
            raise FilterError(
                f"the values of {type!r} must be all strings, all numbers or all booleans, got {operand!r}"
            )
    elif not storable(operand):
        raise FilterError(f"the value of {type!r} must be a string, a number or a boolean, got {operand!r}")


def storable(value: object) -> bool:
    """What the store can compare: Unicode text without NUL, a boolean, a number that is not too large for a double."""
    if isinstance(value, str):
        return UNSTORABLE.search(value) is None
    return isinstance(value, int | float) and abs(value) < LARGEST


def _condition(filter: Filter, subjects: _Subjects, parameters: dict[str, Any], numbers: "count[int]") -> Composed:
    if isinstance(filter, Compound):
        parts = [_condition(each, subjects, parameters, numbers) for each in filter.filters]
        return SQL("({})").format(SQL(f" {filter.type} ").join(parts))
    number = next(numbers)
    if filter.key in CHUNK_KEYS:
        subject, passing = subjects.chunk, _chunks(filter, parameters, number)
    else:
        subject, passing = subjects.document, _documents(filter, parameters, number)
    return SQL("{} {} {}").format(subject, SQL("not in" if filter.type in ("ne", "nin") else "in"), passing)


def _documents(filter: Comparison, parameters: dict[str, Any], number: int) -> Composed:
    key, operand = f"key_{number}", f"value_{number}"
    parameters[key], parameters[operand] = filter.key, _operand(filter.value)
    return DOCUMENTS_WITH.format(
        key=Placeholder(key), column=Identifier(_column(filter.value)), condition=_comparing(filter, operand)
    )


def _chunks(filter: Comparison, parameters: dict[str, Any], number: int) -> Composed:
    """A page is a number and a section a string: compared with anything else they are not equal."""
    if not all(_suits(filter.key, value) for value in _listed(filter.value)):
        return CHUNKS_WITH.format(condition=SQL("false"))
    operand = f"value_{number}"
    parameters[operand] = _paged(filter.value) if filter.key == "page" else filter.value
    condition = SQL("{} {}").format(CHUNK_KEYS[filter.key], _comparing(filter, operand))
    return CHUNKS_WITH.format(condition=condition)


def _suits(key: str, value: Value) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number if key == "page" else isinstance(value, str)


def _paged(value: Value) -> Any:
    """Whole numbers as such: the index of pages does not serve comparisons with floats."""
    if isinstance(value, list | tuple):
        whole = all(isinstance(each, int) or each.is_integer() for each in value)
        return [int(each) if whole else float(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _comparing(filter: Comparison, operand: str) -> Composed:
    if filter.type in ("in", "nin"):
        return SQL("= any({})").format(Placeholder(operand))
    return SQL("{} {}").format(OPERATORS.get(filter.type, SQL("=")), Placeholder(operand))


def _column(value: Value) -> str:
    return "text_value" if isinstance(_listed(value)[0], str | bool) else "number_value"


def _listed(value: Value) -> Sequence[Value]:
    return value if isinstance(value, list | tuple) else [value]


def _operand(value: Value) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    return float(value) if isinstance(value, int | float) else [_operand(each) for each in value]
