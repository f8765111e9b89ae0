"""Metadata filters: their JSON grammar, and their translation to SQL.

The grammar is that of OpenAI's vector stores: `{"key": "language", "type": "eq", "value": "en"}`, combined by
`{"type": "and" | "or", "filters": [...]}`. The keys `page` and `section` refer to the chunk, every other key refers to
the metadata of its document.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from psycopg.sql import SQL, Composable, Composed, Identifier, Placeholder

from rag_core.errors import FilterError
from rag_core.types import UNSTORABLE, Comparison, Compound, Filter, Metadata, Value, comparison_text

OPERATORS = {"gt": SQL(">"), "gte": SQL(">="), "lt": SQL("<"), "lte": SQL("<=")}
MAX_NUMBER = 1e308
COMPARISONS = ("eq", "ne", "in", "nin", *OPERATORS)
MAX_FILTER_BYTES = 2000
"""The maximum size of a metadata key and its value together, in UTF-8, that metadata filters can compare. A longer
value, such as an abstract, does not fit in an index entry. It is not stored for filters: they treat it as missing."""
DOCUMENTS_WITH = SQL(
    "(select f.document_id from document_values f where f.tenant = %(tenant)s and f.collection = %(collection_id)s "
    "and f.key = {key} and f.{column} {condition})"
)
VECTORS_WITH = SQL(
    "(select f.id from stored_vector_values f where f.tenant = %(tenant)s and f.store = %(store)s "
    "and f.key = {key} and f.{column} {condition})"
)
CHUNK_KEYS = {"page": SQL("k.page"), "section": SQL("k.metadata ->> 'section'")}
CHUNKS_WITH = SQL(
    "(select k.id from chunks k where k.tenant = %(tenant)s and k.collection = %(collection_id)s and {condition})"
)


@dataclass(frozen=True, slots=True)
class _IdColumns:
    """The columns of the filtered statement that hold ids: of documents, or of vectors, and of chunks if it has any.

    `ids_with` is the subquery for the ids in `owner` that have a metadata value.
    """

    owner: Composable
    ids_with: SQL
    chunk: Composable | None = None


def parse_filter(value: object) -> Filter:
    """Converts JSON to a filter. Raises FilterError, with the rule and the value, if it breaks the grammar."""
    if not isinstance(value, Mapping):
        raise FilterError(f"a filter must be an object with `type`, got {value!r}")
    if value.get("type") not in ("and", "or"):
        return _parse_comparison(value)
    _check_keys(value, {"type", "filters"})
    filters = value["filters"]
    if not isinstance(filters, list) or not filters:
        raise FilterError(f"`filters` of {value['type']!r} must be a non-empty list, got {filters!r}")
    return Compound(type=value["type"], filters=tuple(map(parse_filter, filters)))


def chunk_filter(filter: Filter | None, document: str, chunk: str) -> tuple[Composable, dict[str, Any]]:
    """The SQL condition that is true for a chunk that passes the filter, and the condition's parameters.

    `document` and `chunk` are the columns that hold the ids, such as `v.chunk_id`.
    """
    columns = _IdColumns(Identifier(*document.split(".")), DOCUMENTS_WITH, Identifier(*chunk.split(".")))
    return _build_condition(filter, columns)


def vector_filter(filter: Filter | None, id: str) -> tuple[Composable, dict[str, Any]]:
    """The condition and the parameters for a vector of a vector store; `id` is the column that holds its id."""
    return _build_condition(filter, _IdColumns(Identifier(*id.split(".")), VECTORS_WITH))


def comparable_values(metadata: Metadata) -> list[tuple[str, str | None, float | None]]:
    """The values that filters compare, as (key, text, None) or (key, None, number); one for each element of a list."""
    return [
        (key, None, float(value))
        if isinstance(value, int | float) and not isinstance(value, bool)
        else (key, comparison_text(value), None)
        for key, values in comparable_elements(metadata).items()
        for value in values
    ]


def comparable_elements(metadata: Metadata) -> dict[str, list[Value]]:
    """The values that filters compare, by key: the elements of lists, without texts that are too long."""
    return {
        key: [
            element
            for element in value_elements(value)
            if not isinstance(element, str) or len(key.encode()) + len(element.encode()) <= MAX_FILTER_BYTES
        ]
        for key, value in metadata.items()
    }


def has_chunk_condition(filter: Filter) -> bool:
    """True if a comparison refers to the chunk and not to its document."""
    if isinstance(filter, Compound):
        return any(map(has_chunk_condition, filter.filters))
    return filter.key in CHUNK_KEYS


def list_keys(filter: Filter) -> set[str]:
    """The keys that the filter compares."""
    if isinstance(filter, Compound):
        return {key for part in filter.filters for key in list_keys(part)}
    return {filter.key}


def is_storable(value: object) -> bool:
    """True for values that the store can compare: text without NUL and surrogates, booleans, and finite numbers."""
    if isinstance(value, str):
        return UNSTORABLE.search(value) is None
    return isinstance(value, int | float) and abs(value) < MAX_NUMBER


def _parse_comparison(value: Mapping[str, Any]) -> Comparison:
    _check_keys(value, {"type", "key", "value"})
    if value["type"] not in COMPARISONS:
        raise FilterError(
            f"a filter's type must be one of {', '.join((*COMPARISONS, 'and', 'or'))}, got {value['type']!r}"
        )
    if not isinstance(value["key"], str) or not value["key"] or not is_storable(value["key"]):
        raise FilterError(f"a filter's key must be a non-empty string that can be stored, got {value['key']!r}")
    _check_operand(value["type"], value["value"])
    return Comparison(key=value["key"], type=value["type"], value=value["value"])


def _check_keys(value: Mapping[str, Any], expected: set[str]) -> None:
    if set(value) != expected:
        raise FilterError(
            f"a filter of type {value.get('type')!r} must have the keys {sorted(expected)}, got {sorted(value)}"
        )


def _check_operand(type: str, operand: object) -> None:
    if type in ("in", "nin"):
        if not isinstance(operand, list) or not operand or not all(map(is_storable, operand)):
            raise FilterError(
                f"the value of {type!r} must be a non-empty list of strings, numbers or booleans, got {operand!r}"
            )
        if len({isinstance(element, str) + 2 * isinstance(element, bool) for element in operand}) > 1:
            raise FilterError(
                f"the values of {type!r} must be all strings, all numbers or all booleans, got {operand!r}"
            )
    elif not is_storable(operand):
        raise FilterError(f"the value of {type!r} must be a string, a number or a boolean, got {operand!r}")


def _build_condition(filter: Filter | None, columns: _IdColumns) -> tuple[Composable, dict[str, Any]]:
    parameters: dict[str, Any] = {}
    return (_condition(filter, columns, parameters, count()) if filter else SQL("true")), parameters


def _condition(filter: Filter, columns: _IdColumns, parameters: dict[str, Any], numbers: "count[int]") -> Composed:
    """The condition of a filter. Adds its values to `parameters`, under names that end in the next of `numbers`."""
    if isinstance(filter, Compound):
        parts = [_condition(part, columns, parameters, numbers) for part in filter.filters]
        return SQL("({})").format(SQL(f" {filter.type} ").join(parts))
    number = next(numbers)
    if columns.chunk is not None and filter.key in CHUNK_KEYS:
        column, matching_ids = columns.chunk, _matching_chunks(filter, parameters, number)
    else:
        column, matching_ids = columns.owner, _matching_owners(filter, columns.ids_with, parameters, number)
    return SQL("{} {} {}").format(column, SQL("not in" if filter.type in ("ne", "nin") else "in"), matching_ids)


def _matching_owners(filter: Comparison, ids_with: SQL, parameters: dict[str, Any], number: int) -> Composed:
    key, operand = f"key_{number}", f"value_{number}"
    parameters[key], parameters[operand] = filter.key, _document_operand(filter.value)
    column = "text_value" if isinstance(value_elements(filter.value)[0], str | bool) else "number_value"
    return ids_with.format(key=Placeholder(key), column=Identifier(column), condition=_comparison_sql(filter, operand))


def _matching_chunks(filter: Comparison, parameters: dict[str, Any], number: int) -> Composed:
    """A page is a number and a section is a string; they do not match values of other types."""
    types: tuple[type, ...] = (int, float) if filter.key == "page" else (str,)
    if not all(isinstance(value, types) and not isinstance(value, bool) for value in value_elements(filter.value)):
        return CHUNKS_WITH.format(condition=SQL("false"))
    operand = f"value_{number}"
    parameters[operand] = _page_operand(filter.value) if filter.key == "page" else filter.value
    condition = SQL("{} {}").format(CHUNK_KEYS[filter.key], _comparison_sql(filter, operand))
    return CHUNKS_WITH.format(condition=condition)


def _comparison_sql(filter: Comparison, operand: str) -> Composed:
    """The operator and the operand of a comparison. `not in` is added outside the subquery, so `ne` is `=` here."""
    if filter.type in ("in", "nin"):
        return SQL("= any({})").format(Placeholder(operand))
    return SQL("{} {}").format(OPERATORS.get(filter.type, SQL("=")), Placeholder(operand))


def _document_operand(value: Value) -> Any:
    if isinstance(value, str | bool):
        return comparison_text(value)
    return float(value) if isinstance(value, int | float) else [_document_operand(element) for element in value]


def _page_operand(value: Value) -> Any:
    """Integers where possible: the index on pages is not used for comparisons with floats."""
    if isinstance(value, list | tuple):
        are_integers = all(isinstance(page, int) or page.is_integer() for page in value)
        return [int(page) if are_integers else float(page) for page in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def value_elements(value: Value) -> Sequence[Value]:
    return value if isinstance(value, list | tuple) else [value]
