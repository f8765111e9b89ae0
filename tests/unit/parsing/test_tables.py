from rag_core.parsing.tables import CoveredBy, find_tables, table

LEFT, ABOVE = CoveredBy.LEFT, CoveredBy.ABOVE


def test_a_table_is_markdown_with_its_first_row_as_header() -> None:
    assert table([["A", "B"], ["1|2", "x\ny"]]).text == "| A | B |\n| --- | --- |\n| 1\\|2 | x y |"


def test_empty_rows_and_columns_are_left_out() -> None:
    assert table([["", "A", "", "B"], ["", "", "", ""], ["", "1", "", ""]]).text == "| A | B |\n| --- | --- |\n| 1 |  |"
    assert table([]).text == table([["", ""]]).text == ""


def test_a_merged_cell_is_repeated_in_every_cell_that_it_covers() -> None:
    rows = [["2024", LEFT, "sum"], ["a", "b", ABOVE]]
    assert table(rows).text.splitlines()[::2] == ["| 2024 | 2024 | sum |", "| a | b | sum |"]


def test_a_cell_merged_over_its_whole_row_is_written_once() -> None:
    assert table([["Title", LEFT], ["a", "b"]]).text.splitlines()[0] == "| Title |  |"


def test_a_long_merged_text_is_written_once() -> None:
    text = "x" * 201
    assert table([[text, LEFT, "a"], [ABOVE, LEFT, "b"]]).text.count(text) == 1


def test_a_sheet_falls_into_its_filled_parts() -> None:
    sheet = [
        ["a", "b", "", "", "X", "Y"],
        ["1", "2", "", "", "3", ""],
        [],
        ["c", "", "d"],
    ]
    assert find_tables(sheet) == [[["a", "b"], ["1", "2"]], [["X", "Y"], ["3"]], [["c", "", "d"]]]


def test_an_empty_row_separates_parts_next_to_a_longer_one_too() -> None:
    sheet = [["a", "", "", "1"], ["", "", "", "2"], ["b", "", "", "3"]]
    assert find_tables(sheet) == [[["a"]], [["b"]], [["1"], ["2"], ["3"]]]
