import pytest

from rag_core.parsing.pdf.columns import Cell, Row
from rag_core.parsing.pdf.grid import Grid, find_grids


def row(y: float, *cells: tuple[str, float], page: int = 0) -> Row:
    """A row of cells, each given by its text and its left end. Letters are 5 points wide."""
    return Row(tuple(Cell(text, x, x + 5 * len(text)) for text, x in cells), page, y, 10.0)


def grids(*rows: Row) -> list[Grid]:
    return list(find_grids(rows))


HEAD = row(700, ("Year", 72), ("Ducks", 200))
FIRST = row(688, ("2019", 72), ("120", 205))


def test_cells_below_each_other_are_a_table() -> None:
    rows = row(720, ("A line of text", 72)), HEAD, FIRST, row(660, ("And a line of text again", 72))
    assert grids(*rows) == [Grid(1, 3, (("Year", "Ducks"), ("2019", "120")))]


def test_a_cell_continues_on_the_lines_below_it_and_a_missing_one_is_empty() -> None:
    head = row(712, ("Name", 72), ("Type", 150), ("Use", 250))
    rows = (
        head,
        row(700, ("a", 72), ("text", 150), ("holds", 250)),
        row(688, ("words", 250)),
        row(676, ("b", 72), ("x", 250)),
    )
    assert grids(*rows) == [Grid(0, 4, (("Name", "Type", "Use"), ("a", "text", "holds words"), ("b", "", "x")))]


def test_a_single_number_or_a_line_at_the_usual_step_is_a_row() -> None:
    rows = (
        row(700, ("Product name", 72), ("Quantity", 200), ("Colour", 300)),
        row(686, ("Pencil", 72), ("300", 200), ("Red", 300)),
        row(672, ("700", 200)),
        row(658, ("Ink", 72), ("20", 200), ("Blue", 300)),
        row(644, ("Green", 300)),
    )
    [grid] = grids(*rows)
    assert grid.texts[1:] == (("Pencil", "300", "Red"), ("", "700", ""), ("Ink", "20", "Blue"), ("", "", "Green"))


def test_lines_that_are_closer_than_rows_are_one_cell() -> None:
    rows = (
        HEAD,
        FIRST,
        row(668, ("2020", 72), ("Some", 200)),
        row(658, ("Mallards", 200)),
        row(638, ("2021", 72), ("9", 205)),
    )
    assert grids(*rows)[0].texts[2:] == (("2020", "Some Mallards"), ("2021", "9"))


def test_a_table_continues_on_the_next_page_without_its_repeated_header() -> None:
    end = row(676, ("2020", 72), ("130", 205))
    rows = (HEAD, FIRST, HEAD._replace(page=1), end._replace(page=1), end._replace(page=2))
    assert grids(*rows) == [Grid(0, 5, (("Year", "Ducks"), ("2019", "120"), ("2020", "130"), ("2020", "130")), (2, 3))]
    assert [(grid.start, grid.end) for grid in grids(HEAD, FIRST, HEAD._replace(page=2), FIRST._replace(page=2))] == [
        (0, 2),
        (2, 4),
    ]
    elsewhere = row(700, ("Mills", 90), ("Weirs", 250), page=1), row(688, ("7", 90), ("9", 250), page=1)
    assert [(grid.start, grid.end) for grid in grids(HEAD, FIRST, *elsewhere)] == [(0, 2), (2, 4)]


@pytest.mark.parametrize(
    "rows",
    [
        (HEAD,),
        (HEAD, row(688, ("reaches over both of the columns", 72), ("x", 300))),
        (HEAD, FIRST._replace(page=1)),
        (HEAD, FIRST._replace(baseline=712.0)),
        (row(700, ("1.", 72), ("one", 100)), row(688, ("2.", 72), ("two", 100))),
        (row(700, ("x" * 50, 72), ("y" * 50, 350)), row(688, ("x" * 50, 72), ("y" * 50, 350))),
        (),
    ],
)
def test_rows_that_only_resemble_a_table_are_not_one(rows: tuple[Row, ...]) -> None:
    assert grids(*rows) == []


def row_by_centres(y: float, *cells: tuple[str, float], page: int = 0) -> Row:
    """A row of cells, each given by its text and its centre."""
    return row(y, *((text, middle - 2.5 * len(text)) for text, middle in cells), page=page)


def figures(y: float, label: str, *numbers: str, page: int = 0) -> Row:
    """A label at 72 and numbers that end at 260, 320, ..."""
    ends = [(number, 260 + 60 * n - 5 * len(number)) for n, number in enumerate(numbers)]
    return row(y, (label, 72), *ends, page=page)


def test_years_above_figures_are_the_header_of_a_table_without_a_head_of_its_labels() -> None:
    rows = row(712, ("2023", 240), ("2022", 300)), figures(700, "Cash", "1,234", "987"), figures(688, "Debt", "5", "6")
    assert grids(*rows)[0].texts[0] == ("", "2023", "2022")


def test_a_head_above_several_columns_is_joined_to_theirs() -> None:
    rows = (
        row_by_centres(724, ("2023", 270), ("2022", 390)),
        figures(712, "Region", "Sales", "Cost", "Sales", "Cost"),
        figures(700, "North", "1,234", "987", "55", "44"),
        figures(688, "South", "2,345", "876", "66", "33"),
    )
    [grid] = grids(*rows)
    assert (grid.start, grid.end) == (0, 4)
    assert grid.texts[0] == ("Region", "2023 / Sales", "2023 / Cost", "2022 / Sales", "2022 / Cost")


def test_the_lines_of_a_head_are_joined_with_spaces() -> None:
    rows = (
        row(711, ("Net", 305)),
        figures(700, "Region", "Sales", "income"),
        figures(684, "North", "1,234", "987"),
        figures(668, "South", "2,345", "876"),
    )
    assert grids(*rows)[0].texts[0] == ("Region", "Sales", "Net income")


def test_the_label_of_a_section_does_not_end_a_table() -> None:
    rows = (
        row(724, ("2023", 240), ("2022", 300)),
        row(712, ("Assets", 72)),
        figures(700, "Cash", "1,234", "987"),
        row(688, ("Liabilities", 72)),
        figures(676, "Debt", "55", "44"),
        row(664, ("Loans, and what is due to", 72)),
        figures(652, "other banks", "66", "33"),
    )
    assert [texts[0] for texts in grids(*rows)[0].texts] == [
        "",
        "Assets",
        "Cash",
        "Liabilities",
        "Debt",
        "Loans, and what is due to other banks",
    ]


def test_a_sign_near_the_number_before_it_belongs_to_the_next_one() -> None:
    rows = (
        figures(712, "Item", "2023", "2022"),
        row(700, ("Cash", 72), ("$", 215), ("1,234 $", 235), ("987", 305)),
        figures(688, "Debt", "55", "44"),
    )
    assert grids(*rows)[0].texts[1] == ("Cash", "$ 1,234", "$ 987")


def test_a_table_continues_below_a_label_on_the_next_page_but_not_with_another_head() -> None:
    first = figures(700, "Item", "2023", "2022"), figures(688, "Cash", "1,234", "987")
    label = row(700, ("Liabilities", 72), page=1)
    assert grids(*first, label, figures(688, "Debt", "55", "44", page=1))[0].texts[2:] == (
        ("Liabilities", "", ""),
        ("Debt", "55", "44"),
    )
    other = figures(700, "Mill", "2013", "2012", page=1), figures(688, "Weir", "55", "44", page=1)
    assert [grid.texts[0] for grid in grids(*first, *other)] == [("Item", "2023", "2022"), ("Mill", "2013", "2012")]


def test_the_rest_of_a_table_below_notes_of_the_page_before_has_the_same_header() -> None:
    first = figures(700, "Item", "2023", "2022"), figures(688, "Cash", "1,234", "987"), row(660, ("(1) Restated.", 72))
    continuation = figures(700, "Debt", "55", "44", page=1), figures(688, "Loans", "66", "33", page=1)
    assert [grid.texts[0] for grid in grids(*first, *continuation)] == [("Item", "2023", "2022")] * 2
