import pytest

from rag_core.parsing.plain.text import TextParser
from rag_core.types import Document, Section


def parse(text: str) -> Document:
    return TextParser().parse("file:///a.txt", text.encode())


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("\nA title\n\nbody\n", "A title"),
        ("A title\n=======\nbody\n", "A title"),
        ("=======\nA title\n=======\nbody\n", "A title"),
        ("first line\nsecond line\n", ""),
        ("x" * 120 + "\n\nbody", "x" * 120),
        ("x" * 121 + "\n\nbody", ""),
        ("", ""),
    ],
)
def test_a_short_first_line_on_its_own_is_the_title(text: str, title: str) -> None:
    assert parse(text).title == title


def test_underlined_lines_open_sections_in_the_order_of_their_styles() -> None:
    document = parse("====\nDoc\n====\n\nOne\n---\ntext\n\nSub\n~~~\n\nTwo\n---\n")
    assert document.sections == (
        Section(path=("Doc",), start=0),
        Section(path=("Doc", "One"), start=15),
        Section(path=("Doc", "One", "Sub"), start=29),
        Section(path=("Doc", "Two"), start=38),
    )


@pytest.mark.parametrize(
    "text", ["para one\npara two\n--------\n", "a much longer line than its rule\n---\n", "---\n", "\n----\n"]
)
def test_a_rule_is_not_an_underline(text: str) -> None:
    assert parse(text).sections == ()
