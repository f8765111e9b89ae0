import pytest

from rag_core.parsing.pdf.columns import Cell, Row
from rag_core.parsing.pdf.grid import Grid, find_grids


def row(y: float, *cells: tuple[str, float], page: int = 0) -> Row:
    """A row of cells, each given by its text and its left end. Letters are 5 points wide."""
    return Row(tuple(Cell(text, left, left + 5 * len(text)) for text, left in cells), page, y, 10.0)


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
