import pytest

from rag_core.parsing.markup.asciidoc import AsciidocParser
from rag_core.types import Document


def parse(text: str) -> Document:
    return AsciidocParser().parse("file:///a.adoc", text.encode())


def test_headings_lists_and_paragraphs_become_markdown() -> None:
    document = parse(
        ":toc:\n= Mill\n\n[[anchor]]\n== Wheel\nTwo lines\nof a link:http://x[link].\n\n* one\n** two\n. first\n"
        ".Caption\nimage::x.png[A wheel, width=1]\n"
    )
    assert document.text == (
        "# Mill\n\n## Wheel\n\nTwo lines of a link.\n\n- one\n    - two\n1. first\n\nCaption\n\nA wheel\n"
    )
    assert [section.path for section in document.sections] == [("Mill",), ("Mill", "Wheel")]


def test_tables_have_one_row_a_line_or_one_cell_a_line() -> None:
    rows = "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    assert parse("|===\n|a |b\n|1 |2\n|===\n").text == rows
    assert parse("|===\n|a |b\n\n|1\n|2\n|===\n").text == rows
    assert parse("|a|b|\n|1|2|\n").text == rows


@pytest.mark.parametrize(
    "settings", ['[cols="1,2"]', "[%header,cols=2*]", '[cols="2*<.>a", options="header"]\n.Ducks', "[cols=1;3]\n[#id]"]
)
def test_settings_give_the_number_of_cells_of_a_row(settings: str) -> None:
    text = parse(f"{settings}\n|===\n|Year\n|Ducks\n\n|2019\n|120\n|2020\n|===\n").text
    assert text.endswith("| Year | Ducks |\n| --- | --- |\n| 2019 | 120 |\n| 2020 |  |\n")


def test_code_keeps_its_lines_and_comments_are_gone() -> None:
    assert parse("----\n= no heading\n\n* x\n----\n// no\n////\nno\n////\nend\n").text == (
        "```\n= no heading\n\n* x\n```\n\nend\n"
    )


def test_an_unclosed_block_ends_with_the_document() -> None:
    assert parse("a\n\n----\ncode").text == "a\n\n```\ncode\n```\n"
    assert parse("|===\n|a |b").text == "| a | b |\n| --- | --- |\n"


def test_a_cell_can_have_several_lines() -> None:
    text = parse("|===\n|Name |Desc\n\n|a\n|first\nsecond\n\n|b\n|more\n|===\n").text
    assert text == "| Name | Desc |\n| --- | --- |\n| a | first second |\n| b | more |\n"
