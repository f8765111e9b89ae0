import pytest

from rag_core.errors import FilterError
from rag_core.storage.filters import chunk_filter, parse_filter
from rag_core.types import Comparison, Compound

LANGUAGE = {"key": "language", "type": "eq", "value": "en"}


def test_a_filter_is_read_from_its_json() -> None:
    year = {"key": "year", "type": "in", "value": [2023, 2024.5]}
    assert parse_filter({"type": "and", "filters": [LANGUAGE, {"type": "or", "filters": [year]}]}) == Compound(
        type="and",
        filters=(
            Comparison(key="language", type="eq", value="en"),
            Compound(type="or", filters=(Comparison(key="year", type="in", value=[2023, 2024.5]),)),
        ),
    )


@pytest.mark.parametrize(
    ("filter", "complaint"),
    [
        ("language", r"a filter must be an object with `type`, got 'language'"),
        ([LANGUAGE], r"a filter must be an object with `type`, got \[\{'key'"),
        ({}, r"a filter of type None must have the keys \['key', 'type', 'value'\], got \[\]"),
        ({**LANGUAGE, "boost": 2}, r"of type 'eq' must have the keys \['key', 'type', 'value'\], got \['boost', 'key'"),
        ({"type": "eq", "key": "a"}, r"must have the keys .*, got \['key', 'type'\]"),
        ({**LANGUAGE, "type": "like"}, r"must be one of eq, ne, in, nin, gt, gte, lt, lte, and, or, got 'like'"),
        ({**LANGUAGE, "type": None}, r"must be one of .*, got None"),
        ({**LANGUAGE, "key": ""}, r"key must be a non-empty string that can be stored, got ''"),
        ({**LANGUAGE, "key": 3}, r"key must be a non-empty string that can be stored, got 3"),
        ({**LANGUAGE, "key": "\ud800"}, r"key must be a non-empty string that can be stored, got '\\ud800'"),
        ({**LANGUAGE, "value": "\ud800"}, r"value of 'eq' must be a string, a number or a boolean, got '\\ud800'"),
        ({**LANGUAGE, "value": None}, r"value of 'eq' must be a string, a number or a boolean, got None"),
        ({**LANGUAGE, "value": ["en"]}, r"value of 'eq' must be a string, a number or a boolean, got \['en'\]"),
        ({**LANGUAGE, "type": "in"}, r"value of 'in' must be a non-empty list .*, got 'en'"),
        ({**LANGUAGE, "type": "nin", "value": []}, r"value of 'nin' must be a non-empty list .*, got \[\]"),
        (
            {**LANGUAGE, "type": "in", "value": [None]},
            r"a non-empty list of strings, numbers or booleans, got \[None\]",
        ),
        ({**LANGUAGE, "type": "in", "value": ["a", 1]}, r"all strings, all numbers or all booleans, got \['a', 1\]"),
        ({**LANGUAGE, "type": "in", "value": [1, True]}, r"all strings, all numbers or all booleans, got \[1, True\]"),
        ({"type": "and", "filters": []}, r"`filters` of 'and' must be a non-empty list, got \[\]"),
        ({"type": "or", "filters": LANGUAGE}, r"`filters` of 'or' must be a non-empty list, got \{'key'"),
        (
            {"type": "or", "value": [LANGUAGE]},
            r"of type 'or' must have the keys \['filters', 'type'\], got \['type', 'value'\]",
        ),
        ({"type": "and", "filters": [{**LANGUAGE, "type": "is"}]}, r"must be one of .*, got 'is'"),
    ],
)
def test_syntax_that_the_grammar_does_not_allow_is_named(filter: object, complaint: str) -> None:
    with pytest.raises(FilterError, match=complaint):
        parse_filter(filter)


def test_no_filter_is_a_condition_that_holds() -> None:
    condition, parameters = chunk_filter(None, "v.document_id", "v.chunk_id")
    assert (condition.as_string(), parameters) == ("true", {})


def test_keys_and_values_reach_the_database_as_parameters() -> None:
    hostile = "'; drop table documents; --"
    filters = [{"key": hostile, "type": "lt", "value": 3}, {"key": "tag", "type": "nin", "value": [True, False]}]
    condition, parameters = chunk_filter(
        parse_filter({"type": "or", "filters": filters}), "v.document_id", "v.chunk_id"
    )
    assert parameters == {"key_0": hostile, "value_0": 3.0, "key_1": "tag", "value_1": ["true", "false"]}
    text = condition.as_string()
    assert hostile not in text
    assert 'f."number_value" < %(value_0)s) or "v"."document_id" not in' in " ".join(text.split())
