"""Spreadsheets: each visible sheet a section, with the tables, texts and comments that stand on it.

calamine reads ten times as fast as openpyxl but trusts its input, so an XLSX is unpacked within limits and measured
before. On damaged XLS it ends the process: those go to xlrd.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from io import BytesIO, StringIO
from typing import Literal, TypeAlias

import xlrd
from python_calamine import (
    CalamineError,
    CalamineSheet,
    CalamineWorkbook,
    PasswordError,
    SheetMetadata,
    SheetTypeEnum,
    SheetVisibleEnum,
)

from rag_core.errors import DocumentError
from rag_core.parsing.archive import Archive, opened
from rag_core.parsing.blocks import Block, comment, heading, joined, paragraph
from rag_core.parsing.office.cell_formats import Codes, codes, column_of, styles
from rag_core.parsing.office.drawings import DRAWING, alternative, graphic_blocks, text_blocks
from rag_core.parsing.office.numbers import formatted, number
from rag_core.parsing.office.packages import RELATIONSHIP, Part, described, main_part
from rag_core.parsing.outline import outlined
from rag_core.parsing.safe_xml import Element, spoken
from rag_core.parsing.tables import Cell, Covered, plain_table, regions
from rag_core.types import Document

VERSION = 3
PACKAGE = "python-calamine"

_Sheet: TypeAlias = tuple[str, list[list[Cell]]]

_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_OLD_MEDIA_TYPE = "application/vnd.ms-excel"
_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_HEADING = 2

# calamine lays a sheet out from its first to its last cell, so two cells can ask for more memory than there is
_MOST_PLACES = 16_000_000
_PLACE = re.compile(rb"""\sr=["']\s*([A-Za-z]{0,3})(\d{1,7})\s*["']""")
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
_LARGEST_MERGE = 10_000


class SheetsParser:
    def parse(self, uri: str, body: bytes) -> Document:
        archive = opened(body)
        workbook = main_part(archive, "xl")
        if workbook.name.endswith(".bin"):
            raise DocumentError("parse", "unsupported: a binary workbook (XLSB); save it as XLSX", status="skipped")
        packed = archive.repacked((".xml", ".rels"))
        _refuse_wide(opened(packed))
        beside = {name: list(_beside(sheet, _persons(workbook))) for name, sheet in _sheets(workbook)}
        text = joined(_blocks(_read(packed, _codes(opened(packed), workbook)), beside))
        return _sectioned(described(Document(uri=uri, text=text, media_type=_MEDIA_TYPE), archive))


class LegacySheetsParser:
    def parse(self, uri: str, body: bytes) -> Document:
        """Also an XLSX that calls itself XLS, as many programs write it."""
        if body.startswith(b"PK"):
            return SheetsParser().parse(uri, body)
        if not body:
            raise DocumentError("parse", "empty", status="skipped")
        text = joined(_blocks(_read_old(body), {}))
        return _sectioned(Document(uri=uri, text=text, media_type=_OLD_MEDIA_TYPE))


def _sectioned(document: Document) -> Document:
    """Not titled by its first sheet, which is `Sheet1` as often as not."""
    return replace(outlined(document), title=document.title)


def _blocks(sheets: Iterable[_Sheet], beside: Mapping[str, list[Block]]) -> Iterator[Block]:
    """`beside` is what stands on a sheet but not in its cells, by the sheet's name."""
    for name, rows in sheets:
        filled = [*map(plain_table, regions(rows)), *beside.get(name, [])]
        if any(block.text for block in filled):
            yield heading(_HEADING, name)
            yield from filled


def _codes(archive: Archive, workbook: Part) -> dict[str, Codes]:
    """By the name of the sheet."""
    known = styles(workbook)
    if not known:
        return {}
    return {name: codes(archive.read(sheet.name), known) for name, sheet in _sheets(workbook)}


def _read(workbook: bytes, formats: Mapping[str, Codes]) -> list[_Sheet]:
    try:
        book = CalamineWorkbook.from_filelike(BytesIO(workbook))
        shown = [each for each in book.sheets_metadata if _is_shown(each.typ, each.visible)]
        return [(each.name, _rows_of(book, each, formats.get(each.name, {}))) for each in shown]
    except PasswordError as error:
        raise DocumentError("parse", "password protected") from error
    except (CalamineError, ValueError, OverflowError) as error:
        raise DocumentError("parse", f"damaged workbook: {error}") from error
    except BaseException as error:
        # calamine panics on some damaged bytes, and no module offers that exception's type
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise DocumentError("parse", f"damaged workbook: {error}") from error


def _read_old(body: bytes) -> list[_Sheet]:
    try:
        book = xlrd.open_workbook(file_contents=body, logfile=StringIO(), ragged_rows=True)
        return [(sheet.name, list(_old_rows(sheet, book.datemode))) for sheet in book.sheets() if not sheet.visibility]
    except Exception as error:  # on damaged bytes xlrd raises whatever they lead it to
        reason = "password protected" if "encrypted" in str(error) else f"damaged workbook: {error}"
        raise DocumentError("parse", reason) from error


def _old_rows(sheet: xlrd.sheet.Sheet, datemode: Literal[0, 1]) -> Iterator[list[Cell]]:
    for row in range(sheet.nrows):
        yield [_old_written(cell.ctype, cell.value, datemode) for cell in sheet.row(row)]


def _old_written(kind: int, value: str | float, datemode: Literal[0, 1]) -> str:
    match kind:
        case xlrd.XL_CELL_BOOLEAN:
            return _written(bool(value))
        case xlrd.XL_CELL_DATE:
            return _dated(float(value), datemode)
        case xlrd.XL_CELL_ERROR:
            return ""
        case _:
            return _written(value)


def _dated(value: float, datemode: Literal[0, 1]) -> str:
    try:
        moment = xlrd.xldate_as_datetime(value, datemode)
    except (xlrd.xldate.XLDateError, OverflowError):
        return number(value)
    return _written(moment.time() if 0 <= value < 1 else moment)


def _is_shown(kind: SheetTypeEnum, visibility: SheetVisibleEnum) -> bool:
    return kind in (SheetTypeEnum.WorkSheet, SheetTypeEnum.ChartSheet) and visibility == SheetVisibleEnum.Visible


def _rows_of(book: CalamineWorkbook, known: SheetMetadata, formats: Codes) -> list[list[Cell]]:
    """None of a sheet that is a chart."""
    is_chart = known.typ == SheetTypeEnum.ChartSheet
    return [] if is_chart else _rows(book.get_sheet_by_name(known.name), formats)


def _rows(sheet: CalamineSheet, formats: Codes) -> list[list[Cell]]:
    # calamine begins at the first row, but at the first column that is filled
    before = [""] * (sheet.start or (0, 0))[1]
    texts = [[*before, *map(_written, row)] for row in sheet.iter_rows()]
    for (row, column), code in formats.items():
        if row < len(texts) and column < len(texts[row]):
            texts[row][column] = formatted(texts[row][column], code)
    rows: list[list[Cell]] = [list(row) for row in texts]
    for (top, left), (bottom, right) in sheet.merged_cell_ranges or ():
        if (bottom - top + 1) * (right - left + 1) <= _LARGEST_MERGE:
            _cover(rows[top : bottom + 1], left, right)
    return rows


def _cover(rows: Sequence[list[Cell]], left: int, right: int) -> None:
    for place, row in enumerate(rows):
        width = len(row[left : right + 1])
        first: Cell = row[left] if place == 0 and width else Covered.ABOVE
        row[left : left + width] = [first, *[Covered.ABOVE if place else Covered.LEFT] * (width - 1)][:width]


def _written(cell: int | float | str | bool | time | date | datetime | timedelta) -> str:
    match cell:
        case str():
            return _ESCAPE.sub(_unescaped, cell) if "_x" in cell else cell
        case bool():
            return str(cell).upper()
        case float():
            return number(cell)
        case datetime():
            return cell.isoformat(" ", "seconds").removesuffix(" 00:00:00")
        case timedelta():
            return f"{cell.total_seconds() // 3600:.0f}:{cell.seconds // 60 % 60:02d}:{cell.seconds % 60:02d}"
        case _:
            return str(cell)


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16))


def _refuse_wide(archive: Archive) -> None:
    for name in archive.names:
        if name.lower().endswith(".xml") and not name.startswith(("docProps/", "customXml/")):
            places = _PLACE.findall(archive.read(name))
            columns = max(map(column_of, {column for column, _ in places}), default=0)
            rows = max(map(int, {row for _, row in places}), default=0)
            if rows * columns > _MOST_PLACES:
                raise DocumentError("parse", f"too large: a sheet of {rows} x {columns} cells, limit {_MOST_PLACES}")


def _sheets(workbook: Part) -> Iterator[tuple[str, Part]]:
    for each in workbook.root.iterfind(f"{_SHEET}sheets/{_SHEET}sheet"):
        part = workbook.named(each.get(f"{RELATIONSHIP}id", ""))
        if part is not None:
            yield each.get("name", ""), part


def _beside(sheet: Part, persons: Mapping[str, str]) -> Iterator[Block]:
    for drawing in sheet.related("drawing"):
        for element in drawing.root.iter():
            yield from _drawn(element, drawing)
    for part in sheet.related("comments"):
        yield from _comments(part)
    for part in sheet.related("threadedComment"):
        for each in part.root.iter("{*}threadedComment"):
            author = persons.get(each.get("personId", ""), "")
            yield _noted(author, each.get("ref", ""), spoken(each.find("{*}text")), each.get("dT", ""))


def _drawn(element: Element, drawing: Part) -> Iterator[Block]:
    tag = str(element.tag)
    if tag.endswith("}cNvPr"):
        yield paragraph(alternative(element.get("descr", "")))
    elif tag.endswith("}txBody") and not tag.startswith(DRAWING):
        yield from text_blocks(element)
    else:
        yield from graphic_blocks(element, drawing)


def _comments(part: Part) -> Iterator[Block]:
    """Without those that only say that there is a thread."""
    authors = [spoken(each) for each in part.root.iter(f"{_SHEET}author")]
    for each in part.root.iter(f"{_SHEET}comment"):
        place = each.get("authorId", "")
        author = authors[int(place)] if place.isdecimal() and int(place) < len(authors) else ""
        if not author.startswith("tc="):
            yield _noted(author, each.get("ref", ""), spoken(each.find(f"{_SHEET}text")))


def _noted(author: str, place: str, text: str, date: str = "") -> Block:
    return comment(f"{author} on {place}" if author and place else author or place, text, date)


def _persons(workbook: Part) -> dict[str, str]:
    people = [each for part in workbook.related("person") for each in part.root.iter("{*}person")]
    return {each.get("id", ""): each.get("displayName", "") for each in people}
