import struct

import pytest
from zips import office, relations

from rag_core.errors import DocumentError
from rag_core.parsing.office.sheets import LegacySheetsParser, SheetsParser
from rag_core.types import Document

NAMESPACES = (
    'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)
STYLES = (
    f"<styleSheet {NAMESPACES}><numFmts>"
    '<numFmt numFmtId="170" formatCode="0.0%;[Red]\\-0.0%"/>'
    '<numFmt numFmtId="171" formatCode="0&quot; %&quot;"/><numFmt numFmtId="172" formatCode="00000"/></numFmts>'
    '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="22"/>'
    '<xf numFmtId="9"/><xf numFmtId="170"/><xf numFmtId="171"/>'
    '<xf numFmtId="172"/></cellXfs></styleSheet>'
)
PERCENT, TENTHS_OF_PERCENT, NO_PERCENT, FIVE_DIGITS = 3, 4, 5, 6


def text(cell: str, value: str) -> str:
    return f'<c r="{cell}" t="inlineStr"><is><t>{value}</t></is></c>'


def number(cell: str, value: str, style: int = 0) -> str:
    return f'<c r="{cell}" s="{style}"><v>{value}</v></c>'


def sheet(rows: dict[int, str], merged: str = "") -> str:
    cells = "".join(f'<row r="{row}">{content}</row>' for row, content in rows.items())
    merges = f'<mergeCells><mergeCell ref="{merged}"/></mergeCells>' if merged else ""
    return f"<worksheet {NAMESPACES}><sheetData>{cells}</sheetData>{merges}</worksheet>"


def xlsx(sheets: dict[str, str], core: str = "", hidden: str = "", **parts: str) -> bytes:
    """A workbook. `parts` are the parts that the first sheet has relations to, by kind."""
    states = {name: 'state="hidden"' if name == hidden else "" for name in sheets}
    ids = "".join(
        f'<sheet name="{name}" sheetId="{number}" r:id="worksheet{number}" {states[name]}/>'
        for number, name in enumerate(sheets, 1)
    )
    targets = {f"worksheet{number}": f"worksheets/sheet{number}.xml" for number, _ in enumerate(sheets, 1)}
    files = {f"xl/worksheets/sheet{number}.xml": content for number, content in enumerate(sheets.values(), 1)}
    return office(
        "xl/workbook.xml",
        {
            "[Content_Types].xml": "<Types/>",
            "xl/workbook.xml": f"<workbook {NAMESPACES}><sheets>{ids}</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": relations({**targets, "styles": "styles.xml"}),
            "xl/styles.xml": STYLES,
            "xl/worksheets/_rels/sheet1.xml.rels": relations({kind: f"../{kind}.xml" for kind in parts}),
            **{f"xl/{kind}.xml": content for kind, content in parts.items()},
            **files,
        },
        core,
    )


def parse(*arguments: dict[str, str], core: str = "", hidden: str = "", **parts: str) -> Document:
    return SheetsParser().parse("file:///a.xlsx", xlsx(*arguments, core=core, hidden=hidden, **parts))


def test_each_sheet_is_a_section_with_its_tables() -> None:
    first = sheet({2: text("B2", "Year") + text("C2", "Ducks"), 3: number("B3", "2019") + number("C3", "1.5")})
    document = parse({"Ducks": first, "Empty": sheet({}), "More": sheet({1: text("A1", "x"), 3: text("A3", "y")})})
    assert document.text == (
        "## Ducks\n\n| Year | Ducks |\n| --- | --- |\n| 2019 | 1.5 |\n\n## More\n\n| x |\n| --- |\n\n| y |\n| --- |\n"
    )
    assert [section.path for section in document.sections] == [("Ducks",), ("More",)]


def test_a_workbook_is_not_titled_by_its_first_sheet() -> None:
    one = {"Sheet1": sheet({1: text("A1", "x")})}
    assert parse(one).title == ""
    assert parse(one, core="<dc:title>Ducks</dc:title>").title == "Ducks"


def test_values_are_shown_as_a_reader_would_write_them() -> None:
    cells = (
        number("A1", "4.4000000000000004")
        + number("B1", "43831", 1)
        + number("C1", "43831.5", 2)
        + '<c r="D1" t="b"><v>1</v></c>'
        + text("E1", "a_x000D_b|c")
        + number("F1", "1E+20")
    )
    assert "| 4.4 | 2020-01-01 | 2020-01-01 12:00:00 | TRUE | a b\\|c | 1e+20 |" in parse({"S": sheet({1: cells})}).text


def test_a_merged_cell_is_repeated_in_each_cell_that_it_covers() -> None:
    rows = {1: text("A1", "2024") + text("C1", "sum"), 2: text("A2", "a") + text("B2", "b") + text("C2", "c")}
    assert "| 2024 | 2024 | sum |" in parse({"S": sheet(rows, "A1:B1")}).text


def test_a_merged_cell_hides_nothing_on_a_sheet_whose_first_column_is_empty() -> None:
    rows = {3: text("B3", "2024") + text("D3", "sum"), 4: text("B4", "b") + text("C4", "c") + text("D4", "d")}
    assert "| 2024 | 2024 | sum |" in parse({"S": sheet(rows, "B3:C3")}).text


def test_percentages_are_shown_as_in_excel() -> None:
    cells = (
        number("B2", "0.256", PERCENT)
        + number("C2", "-0.12345", TENTHS_OF_PERCENT)
        + number("D2", "7", NO_PERCENT)
        + number("E2", "0.25")
        + '<c r="F2" s="3" t="inlineStr"><is><t>0.5</t></is></c>'
    )
    assert "| 26% | -12.3% | 7 | 0.25 | 0.5 |" in parse({"S": sheet({2: cells})}).text


def test_leading_zeros_are_shown_as_in_excel() -> None:
    cells = number("A1", "1230", FIVE_DIGITS) + number("B1", "1.5", FIVE_DIGITS) + number("C1", "1230")
    assert "| 01230 | 1.5 | 1230 |" in parse({"S": sheet({1: cells})}).text


def test_a_sheet_that_is_a_chart_has_its_points() -> None:
    spaces = NAMESPACES.partition(" ")[2] + ' xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"'
    series = '<c:ser><c:tx><c:v>Ducks</c:v></c:tx><c:val><c:pt idx="0"><c:v>120</c:v></c:pt></c:val></c:ser>'
    body = office(
        "xl/workbook.xml",
        {
            "xl/workbook.xml": f'<workbook {NAMESPACES}><sheets><sheet name="Chart" sheetId="1" r:id="chartsheet"/>'
            "</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": relations({"chartsheet": "chartsheets/sheet1.xml"}),
            "xl/chartsheets/sheet1.xml": f"<chartsheet {NAMESPACES}/>",
            "xl/chartsheets/_rels/sheet1.xml.rels": relations({"drawing": "../drawing.xml"}),
            "xl/drawing.xml": f'<d:wsDr xmlns:d="urn:d" {spaces}><c:chart r:id="chart"/></d:wsDr>',
            "xl/_rels/drawing.xml.rels": relations({"chart": "chart.xml"}),
            "xl/chart.xml": f"<c:chartSpace {spaces}>{series}</c:chartSpace>",
        },
    )
    assert SheetsParser().parse("file:///a.xlsx", body).text == "## Chart\n\n| Ducks |\n| --- |\n| 120 |\n"


def test_a_binary_workbook_is_skipped_and_not_called_damaged() -> None:
    with pytest.raises(DocumentError, match="unsupported: a binary workbook") as failed:
        SheetsParser().parse("file:///a.xlsb", office("xl/workbook.bin", {"xl/workbook.bin": "\x83\x01"}))
    assert failed.value.status == "skipped"


def test_a_hidden_sheet_is_left_out() -> None:
    sheets = {"Seen": sheet({1: text("A1", "x")}), "Hidden": sheet({1: text("A1", "y")})}
    assert parse(sheets, hidden="Hidden").text == "## Seen\n\n| x |\n| --- |\n"


def test_comments_and_threads_have_author_cell_and_time() -> None:
    comments = (
        f"<comments {NAMESPACES}><authors><author>Bo</author><author>tc=1</author></authors><commentList>"
        '<comment ref="A1" authorId="0"><text><t>why?</t></text></comment>'
        '<comment ref="A1" authorId="1"><text><t>[Threaded comment]</t></text></comment></commentList></comments>'
    )
    thread = (
        '<ThreadedComments xmlns="urn:t"><threadedComment ref="B2" dT="2026-06-18T17:12:37.41"><text>so</text>'
        "</threadedComment></ThreadedComments>"
    )
    document = parse({"S": sheet({1: text("A1", "x")})}, comments=comments, threadedComment=thread)
    assert document.text.endswith("\n\n> Bo on A1: why?\n\n> B2, 2026-06-18 17:12: so\n")


def test_two_distant_cells_do_not_exhaust_the_memory() -> None:
    far = sheet({1: text("A1", "x"), 1048576: text("XFD1048576", "y")})
    with pytest.raises(DocumentError, match="a sheet of 1048576 x 16384 cells, limit 16000000"):
        parse({"S": far})


def test_a_damaged_sheet_fails_with_its_reason() -> None:
    with pytest.raises(DocumentError, match="damaged workbook: "):
        parse({"S": "<worksheet><sheetData><row"})


def record(kind: int, content: bytes) -> bytes:
    return struct.pack("<HH", kind, len(content)) + content


def xls(*records: bytes) -> bytes:
    """A sheet of Excel 2, which is a stream of records without a container."""
    return record(0x09, struct.pack("<HH", 2, 0x10)) + b"".join(records) + record(0x0A, b"")


def label(row: int, column: int, value: str) -> bytes:
    return record(0x04, struct.pack("<HH3sB", row, column, bytes(3), len(value)) + value.encode())


def test_an_old_workbook_is_read() -> None:
    year = record(0x03, struct.pack("<HH3sd", 1, 0, bytes(3), 2019.0))
    document = LegacySheetsParser().parse("file:///a.xls", xls(label(0, 0, "Year"), label(0, 1, "Ducks"), year))
    assert document.text == "## Sheet 1\n\n| Year | Ducks |\n| --- | --- |\n| 2019 |  |\n"
    assert (document.title, document.media_type) == ("", "application/vnd.ms-excel")


def test_a_new_workbook_under_an_old_name_is_read() -> None:
    assert LegacySheetsParser().parse("a.xls", xlsx({"S": sheet({1: text("A1", "x")})})).text.startswith("## S\n")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (xls(record(0x2F, bytes(4))), "password protected"),
        (b"no workbook", "damaged workbook: "),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2000), "damaged workbook: "),
        (b"", "empty"),
    ],
)
def test_a_damaged_old_workbook_fails_with_its_reason(body: bytes, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        LegacySheetsParser().parse("a.xls", body)
