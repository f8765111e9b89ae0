"""The reference of the documentation."""

from pathlib import Path

import pytest

from tools.reference.markdown import describe_type, table
from tools.reference.pages import PAGES

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), "run `make reference`"


def test_a_table_stays_a_table_whatever_its_cells_hold() -> None:
    assert table(("a",), [("one | two\nthree",)]) == "| a |\n| --- |\n| one \\| two three |\n"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 100}, "integer, ≥ 1, ≤ 100"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, "list of text, at least 1"),
        ({"anyOf": [{"$ref": "#/$defs/Hit"}, {"type": "null"}]}, "[Hit](#hit) or `null`"),
        ({"enum": ["a", "b"]}, '`"a"`, `"b"`'),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "by name: number"),
        ({"discriminator": {"mapping": {"fixed": "#/$defs/FixedChunker"}}}, "one of [fixed](#fixedchunker)"),
    ],
)
def test_a_type_is_in_words(schema: dict[str, object], text: str) -> None:
    assert describe_type(schema) == text
