import pytest

from rag_core.errors import DocumentError
from rag_core.parsing.plain.delimited import DelimitedParser


def parse(text: str) -> str:
    return DelimitedParser().parse("file:///a.csv", text.encode()).text


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_guessed_from_the_rows(delimiter: str) -> None:
    rows = ["name,price", "a. b.,1.50", "c: d,2.50"]
    text = parse("\n".join(row.replace(",", delimiter) for row in rows))
    assert text == "| name | price |\n| --- | --- |\n| a. b. | 1.50 |\n| c: d | 2.50 |\n"


def test_ragged_rows_are_kept() -> None:
    assert (
        parse("a,b\n1\n1,2,3\n4,5\n") == "| a | b |  |\n| --- | --- | --- |\n| 1 |  |  |\n| 1 | 2 | 3 |\n| 4 | 5 |  |\n"
    )


def test_quoted_cells_can_contain_delimiters_quotes_and_lines() -> None:
    assert parse('a,b\n"x, ""y""","two\nlines"\n') == '| a | b |\n| --- | --- |\n| x, "y" | two lines |\n'
    assert parse("a,b\n1|2,'3'\n") == "| a | b |\n| --- | --- |\n| 1\\|2 | '3' |\n"


def test_a_column_alone_is_a_table_too() -> None:
    assert parse("word\none\n") == "| word |\n| --- |\n| one |\n"


def test_a_cell_of_5_mb_is_read() -> None:
    assert len(parse(f'a,b\n1,"{"x" * 5_000_000}"\n')) == 5_000_000 + len("| a | b |\n| --- | --- |\n| 1 |  |\n")


def test_one_row_of_many_cells_does_not_widen_all_others() -> None:
    with pytest.raises(DocumentError, match="not a table: 200001 rows, one of them with 100001 cells"):
        parse("a\n" * 200_000 + "," * 100_000)


def test_nuls_and_windows_lines_are_gone() -> None:
    assert parse("a,b\r\n1\0,2\r\n") == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_a_line_that_names_the_delimiter_is_not_a_row() -> None:
    assert parse("sep=;\r\na;b\r\n1,5;2\r\n") == "| a | b |\n| --- | --- |\n| 1,5 | 2 |\n"
    assert parse("sep=a,b\n1,2\n") == "| sep=a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_a_quote_that_never_ends_swallows_no_rows() -> None:
    rows = 'id\tpart\n5\t"big screw\n6\tnut\n7\tbolt\n'
    assert parse(rows).splitlines()[2:] == ['| 5 | "big screw |', "| 6 | nut |", "| 7 | bolt |"]


def test_one_quote_too_many_takes_nothing_from_cells_that_are_quoted_well() -> None:
    rows = ['"a, b",1', '"c, d",2', '"e, f",3', '5" screw,4']
    assert parse("\n".join(["name,n", *rows])).splitlines()[2:] == [
        "| a, b | 1 |",
        "| c, d | 2 |",
        "| e, f | 3 |",
        '| 5" screw | 4 |',
    ]
