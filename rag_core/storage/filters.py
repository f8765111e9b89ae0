"""Filters on metadata, from JSON to SQL. The grammar is that of OpenAI's vector stores:
`{"key": "language", "type": "eq", "value": "en"}`, combined by `{"type": "and" | "or", "filters": [...]}`.
"""

from collections.abc import Mapping
from itertools import count
from typing import Any

from psycopg.sql import SQL, Composable, Composed, Identifier, Placeholder

from rag_core.errors import FilterError
from rag_core.types import Comparison, Compound, Filter, Value

OPERATORS = {"gt": SQL(">"), "gte": SQL(">="), "lt": SQL("<"), "lte": SQL("<=")}
LARGEST = 1e308
COMPARISONS = ("eq", "ne", "in", "nin", *OPERATORS)
DOCUMENTS_WITH = SQL(
    "(select f.document_id from document_values f where f.tenant = %(tenant)s and f.collection = %(collection_id)s "
    "and f.key = {key} and f.{column} {condition})"
)


def parsed_filter(value: object) -> Filter:
    """From its JSON. FilterError names what the grammar does not allow."""
    if not isinstance(value, Mapping):
        raise FilterError(f"a filter is an object with `type`, got {value!r}")
    if value.get("type") in ("and", "or"):
        return _compound(value)
    return _comparison(value)


def document_filter(filter: Filter | None, column: str) -> tuple[Composable, dict[str, Any]]:
    """The condition that holds where the document named by `column` passes, and the parameters that it needs."""
    parameters: dict[str, Any] = {}
    table, name = column.split(".")
    subject = Identifier(table, name)
    return (_condition(filter, subject, parameters, count()) if filter else SQL("true")), parameters


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
    if not isinstance(value["key"], str) or not value["key"] or "\0" in value["key"]:
        raise FilterError(f"a filter's key must be a non-empty string, got {value['key']!r}")
    _check_operand(value["type"], value["value"])
    return Comparison(key=value["key"], type=value["type"], value=value["value"])


def _expect_keys(value: Mapping[str, Any], expected: set[str]) -> None:
    if set(value) != expected:
        raise FilterError(
            f"a filter of type {value.get('type')!r} has the keys {sorted(expected)}, got {sorted(value)}"
        )


def _check_operand(type: str, operand: object) -> None:
    if type in ("in", "nin"):
        if not isinstance(operand, list) or not operand or not all(map(_scalar, operand)):
            raise FilterError(
                f"the value of {type!r} must be a non-empty list of strings, numbers or booleans, got {operand!r}"
            )
        if len({isinstance(each, str) + 2 * isinstance(each, bool) for each in operand}) > 1:
            raise FilterError(
                f"the values of {type!r} must be all strings, all numbers or all booleans, got {operand!r}"
            )
    elif not _scalar(operand):
        raise FilterError(f"the value of {type!r} must be a string, a number or a boolean, got {operand!r}")


def _scalar(value: object) -> bool:
    """What the store can compare: no text with NUL, no number that is too large for a double."""
    if isinstance(value, str):
        return "\0" not in value
    return isinstance(value, int | float) and abs(value) < LARGEST


def _condition(filter: Filter, subject: Composable, parameters: dict[str, Any], numbers: "count[int]") -> Composed:
    if isinstance(filter, Compound):
        parts = [_condition(each, subject, parameters, numbers) for each in filter.filters]
        return SQL("({})").format(SQL(f" {filter.type} ").join(parts))
    number = next(numbers)
    key, operand = f"key_{number}", f"value_{number}"
    parameters[key], parameters[operand] = filter.key, _operand(filter.value)
    documents = DOCUMENTS_WITH.format(
        key=Placeholder(key), column=Identifier(_column(filter.value)), condition=_comparing(filter, operand)
    )
    return SQL("{} {} {}").format(subject, SQL("not in" if filter.type in ("ne", "nin") else "in"), documents)


def _comparing(filter: Comparison, operand: str) -> Composed:
    if filter.type in ("in", "nin"):
        return SQL("= any({})").format(Placeholder(operand))
    return SQL("{} {}").format(OPERATORS.get(filter.type, SQL("=")), Placeholder(operand))


def _column(value: Value) -> str:
    first = value[0] if isinstance(value, list | tuple) else value
    return "text_value" if isinstance(first, str | bool) else "number_value"


def _operand(value: Value) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    return float(value) if isinstance(value, int | float) else [_operand(each) for each in value]
