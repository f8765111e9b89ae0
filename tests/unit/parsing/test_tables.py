from rag_core.parsing.tables import Covered, regions, table

LEFT, ABOVE = Covered.LEFT, Covered.ABOVE


def test_a_table_is_markdown_with_its_first_row_as_header() -> None:
    assert table([["A", "B"], ["1|2", "x\ny"]]).text == "| A | B |\n| --- | --- |\n| 1\\|2 | x y |"


def test_empty_rows_and_columns_are_left_out() -> None:
    assert table([["", "A", "", "B"], ["", "", "", ""], ["", "1", "", ""]]).text == "| A | B |\n| --- | --- |\n| 1 |  |"
    assert table([]).text == table([["", ""]]).text == ""


def test_a_merged_cell_is_told_wherever_it_reaches() -> None:
    rows = [["2024", LEFT, "sum"], ["a", "b", ABOVE]]
    assert table(rows).text.splitlines()[::2] == ["| 2024 | 2024 | sum |", "| a | b | sum |"]


def test_a_cell_merged_over_its_whole_row_is_told_once() -> None:
    assert table([["Title", LEFT], ["a", "b"]]).text.splitlines()[0] == "| Title |  |"


def test_a_long_merged_text_is_told_once() -> None:
    text = "x" * 201
    assert table([[text, LEFT, "a"], [ABOVE, LEFT, "b"]]).text.count(text) == 1


def test_a_sheet_falls_into_its_filled_parts() -> None:
    sheet = [
        ["a", "b", "", "", "X", "Y"],
        ["1", "2", "", "", "3", ""],
        [],
        ["c", "", "d"],
    ]
    assert regions(sheet) == [[["a", "b"], ["1", "2"]], [["X", "Y"], ["3"]], [["c", "", "d"]]]


def test_parts_that_an_empty_row_cuts_beside_a_longer_one_are_parted_too() -> None:
    sheet = [["a", "", "", "1"], ["", "", "", "2"], ["b", "", "", "3"]]
    assert regions(sheet) == [[["a"]], [["b"]], [["1"], ["2"], ["3"]]]
