from zips import relations, zip_bytes

from rag_core.parsing.archive import open_archive
from rag_core.parsing.blocks import join_blocks
from rag_core.parsing.office.drawings import graphic_blocks
from rag_core.parsing.office.packages import Part

NAMESPACES = (
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)


def parse_chart(*series: str, more: str = "") -> str:
    body = zip_bytes(
        {
            "drawing.xml": f'<c:chart {NAMESPACES} r:id="chart"/>',
            "_rels/drawing.xml.rels": relations({"chart": "chart.xml"}),
            "chart.xml": f"<c:chartSpace {NAMESPACES}>{more}{''.join(series)}</c:chartSpace>",
        }
    )
    drawing = Part(open_archive(body), "drawing.xml")
    return join_blocks(graphic_blocks(drawing.root, drawing))


def points(role: str, *values: str, code: str = "") -> str:
    """The points of a series in a role. An empty value makes no point."""
    elements = "".join(f'<c:pt idx="{index}"><c:v>{value}</c:v></c:pt>' for index, value in enumerate(values) if value)
    return f"<c:{role}>{f'<c:formatCode>{code}</c:formatCode>' if code else ''}{elements}</c:{role}>"


def series(name: str, *roles: str) -> str:
    return f"<c:ser>{points('tx', name)}{''.join(roles)}</c:ser>"


def test_series_share_the_categories_of_the_first() -> None:
    assert parse_chart(
        series("Ducks", points("cat", "2019", "2020"), points("val", "120", "135")),
        series("Geese", points("val", "7", "9")),
    ) == ("|  | Ducks | Geese |\n| --- | --- | --- |\n| 2019 | 120 | 7 |\n| 2020 | 135 | 9 |\n")


def test_points_with_other_x_values_have_a_table_of_their_own() -> None:
    assert parse_chart(
        series("Men", points("xVal", "1", "2"), points("yVal", "10", "20")),
        series("Boys", points("xVal", "1", "2"), points("yVal", "11", "21")),
        series("Women", points("xVal", "5", "6"), points("yVal", "50", "60")),
    ) == (
        "|  | Men | Boys |\n| --- | --- | --- |\n| 1 | 10 | 11 |\n| 2 | 20 | 21 |\n\n"
        "|  | Women |\n| --- | --- |\n| 5 | 50 |\n| 6 | 60 |\n"
    )


def test_nested_categories_are_joined_from_the_outermost() -> None:
    levels = points("lvl", "Q1", "Q2", "Q1") + points("lvl", "2023", "", "2024")
    assert parse_chart(series("Sales", f"<c:cat>{levels}</c:cat>", points("val", "1", "2", "3"))) == (
        "|  | Sales |\n| --- | --- |\n| 2023 Q1 | 1 |\n| 2023 Q2 | 2 |\n| 2024 Q1 | 3 |\n"
    )


def test_dates_and_percentages_are_shown_in_their_formats() -> None:
    days = points("cat", "45292", "45292.75", code="yyyy\\-mm\\-dd")
    shares = series("Share", days, points("val", "0.125", "0.3", code="0.0%"))
    assert parse_chart(shares) == (
        "|  | Share |\n| --- | --- |\n| 2024-01-01 | 12.5% |\n| 2024-01-01 18:00:00 | 30.0% |\n"
    )
    assert "| 2028-01-02 | 12.5% |" in parse_chart(shares, more='<c:date1904 val="1"/>')
