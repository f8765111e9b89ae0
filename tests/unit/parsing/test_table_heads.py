import pytest

from rag_core.parsing.table_heads import find_head, is_figure, join_row_signs, join_signs
from rag_core.parsing.tables import CoveredBy, plain_table, table

LEFT, ABOVE = CoveredBy.LEFT, CoveredBy.ABOVE


@pytest.mark.parametrize("text", ["1,234", "(56)", "$ 1.5", "12 %", "\u20ac 7", "-3", "1 234", "2,023"])
def test_numbers_with_signs_are_figures(text: str) -> None:
    assert is_figure(text)


@pytest.mark.parametrize("text", ["2023", "FY 2023", "1st", "Q1", "", "2020-01-01", "12 months"])
def test_years_dates_and_words_are_not_figures(text: str) -> None:
    assert not is_figure(text)


def test_the_levels_of_a_head_are_joined_column_by_column() -> None:
    rows = [["Region", "2023", LEFT, "Note"], [ABOVE, "Revenue", "Cost", ABOVE], ["North", "5", "4", "a"]]
    assert table(rows).text.splitlines() == [
        "| Region | 2023 / Revenue | 2023 / Cost | Note |",
        "| --- | --- | --- | --- |",
        "| North | 5 | 4 | a |",
    ]


def test_a_group_without_merged_cells_reaches_to_the_next_group() -> None:
    rows = [
        ["", "2023", "", "2022", ""],
        ["Region", "Revenue", "Cost", "Revenue", "Cost"],
        ["North", "5", "4", "3", "2"],
    ]
    assert find_head(rows).header == ["Region", "2023 / Revenue", "2023 / Cost", "2022 / Revenue", "2022 / Cost"]


def test_years_in_the_second_row_are_heads_and_in_a_body_of_years_are_not() -> None:
    assert find_head([["", "Ducks", "Ducks"], ["", "2023", "2022"], ["North", "7", "9"]]).header == [
        "",
        "Ducks / 2023",
        "Ducks / 2022",
    ]
    assert find_head([["Mill", "Built"], ["Weir", "1999"], ["Ferry", "2001"]]).header == ["Mill", "Built"]


@pytest.mark.parametrize(
    "rows",
    [
        [["Item", "2023", "2022"], ["Assets", "", ""], ["Cash", "1", "2"]],
        [["Item", "2023", "2022"], ["Cash", "n/a", "-"], ["Debt", "1", "2"]],
        [["Name", "Contact", "Contact"], ["Ann", "phone", "mail"], ["Bob", "phone", "mail"]],
        [["Key", "", "Figure"], ["a", "x", "12"], ["b", "y", "13"]],
    ],
)
def test_a_row_that_only_resembles_a_head_stays_a_row(rows: list[list[str]]) -> None:
    assert find_head(rows).rows == rows[1:]


def test_titles_above_the_head_become_paragraphs() -> None:
    rows = [["Sales of mills", "", ""], ["in thousands", "", ""], ["Mill", "2023", "2022"], ["Weir", "7", "9"]]
    text = plain_table(rows).text
    assert text.startswith("Sales of mills\n\nin thousands\n\n| Mill | 2023 | 2022 |\n| --- |")
    assert plain_table([["Facts", ""], ["Mills", "7"], ["Weirs", "9"]]).text.startswith("| Facts |  |")


def test_signs_in_columns_of_their_own_join_their_numbers() -> None:
    rows = [["", "2023", "2023", ""], ["Cash", "$", "(1,234", ")"], ["Debt", "", "56", "%"], ["Sum", "$", "9", ""]]
    assert join_signs(rows) == [["", "2023"], ["Cash", "$ (1,234)"], ["Debt", "56%"], ["Sum", "$ 9"]]
    assert join_row_signs(["$", "a word", ")"]) == ["$", "a word", ")"]


def test_a_column_of_signs_stays_if_it_has_other_texts() -> None:
    rows = [["Item", "Unit", "Price"], ["Nut", "$", "5"], ["Bolt", "piece", "7"]]
    assert join_signs(rows) == [["Item", "Unit", "Price"], ["Nut", "", "$ 5"], ["Bolt", "piece", "7"]]


def test_the_head_of_an_empty_column_moves_to_the_column_of_values_without_one() -> None:
    rows = [["Item", "2023", "", "2022"], ["Cash", "", "5", "4"], ["Debt", "", "3", "2"]]
    assert find_head(rows).header == ["Item", "2023", "2022"]
    assert find_head(rows).rows == [["Cash", "5", "4"], ["Debt", "3", "2"]]
