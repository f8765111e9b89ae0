import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.errors import DocumentError
from rag_core.parsing.plain.data import DataParser
from rag_core.types import Document


def parse(text: str) -> Document:
    return DataParser().parse("file:///a.json", text.encode())


def test_nested_keys_are_headings_after_the_simple_values() -> None:
    document = parse('{"title": "Mill", "site": {"river": "Exe", "wheels": {"n": 2}}, "open": true, "none": null}')
    assert document.text == "- title: Mill\n- open: true\n\n# site\n\n- river: Exe\n\n## wheels\n\n- n: 2\n"
    assert document.title == "Mill"
    assert [section.path for section in document.sections] == [("site",), ("site", "wheels")]


def test_flat_objects_of_one_shape_are_a_table() -> None:
    text = parse('{"rows": [{"a": 1.50, "b": "x|y"}, {"a": 2, "b": null}]}').text
    assert text == "# rows\n\n| a | b |\n| --- | --- |\n| 1.50 | x\\|y |\n| 2 |  |\n"


def test_other_objects_are_headed_by_their_name_or_number() -> None:
    text = parse('[{"name": "One", "tags": ["a", "b"]}, {"size": {"x": 1}}, "plain"]').text
    assert text == "- plain\n\n# One\n\n- name: One\n- tags: a, b\n\n# 2\n\n## size\n\n- x: 1\n"


def test_a_key_that_is_there_twice_keeps_both_values() -> None:
    assert (
        parse('{"a": "first", "b": {"c": 1}, "a": "second", "b": 2}').text
        == "- a: first, second\n\n# b\n\n- 2\n\n## 1\n\n- c: 1\n"
    )


def test_long_texts_stay_paragraphs_without_a_section() -> None:
    document = parse(json.dumps({"body": "First.\n\n# Second"}))
    assert document.text == "body:\n\nFirst.\n\n\\# Second\n"
    assert document.sections == ()


def test_json_lines_are_a_list() -> None:
    assert parse('{"a": 1}\n\n{"a": 2}\n').text == "| a |\n| --- |\n| 1 |\n| 2 |\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "damaged JSON: nested too deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "damaged JSON: nested too deep"),
        ('{"a": 1}\n{"a"\n', "damaged JSON: line 2: "),
        ('{"a": ', "damaged JSON: "),
        ("", "damaged JSON: "),
    ],
)
def test_damage_is_reported_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(DocumentError) as failed:
        parse(text)
    assert failed.value.reason.startswith(reason)


def test_values_below_the_sixth_level_stay_json() -> None:
    assert parse('{"a":' * 7 + "[1]" + "}" * 7).text.endswith('###### a\n\n{"a": ["1"]}\n')


def test_deep_nesting_does_not_grow_the_text() -> None:
    deep = "[0,[" * 300 + "]" * 600
    assert len(parse(f"[{deep},{deep}]").text) < 4 * 2 * len(deep)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters(categories=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_any_value_becomes_text_that_can_be_stored(value: object) -> None:
    document = parse(json.dumps(value))
    assert "\0" not in document.text + document.title
    (document.text + document.title + repr(document.sections)).encode()
