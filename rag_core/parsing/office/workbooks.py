"""The rows of workbooks: XLSX read by calamine, XLS by xlrd.

calamine reads ten times as fast as openpyxl but trusts its input. An XLSX is therefore unpacked within limits and
measured first. Damaged XLS files make calamine end the process, so xlrd reads XLS. A change of the results needs a
new `sheets.VERSION`.
"""

import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from io import BytesIO, StringIO
from typing import Literal, TypeAlias

import xlrd
from python_calamine import (
    CalamineError,
    CalamineSheet,
    CalamineWorkbook,
    PasswordError,
    SheetTypeEnum,
    SheetVisibleEnum,
)

from rag_core.errors import DocumentError
from rag_core.parsing.archive import Archive
from rag_core.parsing.office.cell_formats import FormatCodes, column_number
from rag_core.parsing.office.numbers import apply_format, format_number
from rag_core.parsing.tables import Cell, CoveredBy

Sheet: TypeAlias = tuple[str, list[list[Cell]]]
"""The name of a sheet and its rows."""

# calamine allocates all cells from the first to the last one, so two distant cells could exhaust the memory
_MAX_CELLS = 16_000_000
_CELL_REFERENCE = re.compile(rb"""\sr=["']\s*([A-Za-z]{0,3})(\d{1,7})\s*["']""")
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
_MAX_MERGED_CELLS = 10_000


def check_sizes(archive: Archive) -> None:
    """Raises DocumentError if the cells of a sheet are too far apart for calamine."""
    for name in archive.names:
        if name.lower().endswith(".xml") and not name.startswith(("docProps/", "customXml/")):
            references = _CELL_REFERENCE.findall(archive.read(name))
            columns = max(map(column_number, {column for column, _ in references}), default=0)
            rows = max(map(int, {row for _, row in references}), default=0)
            if rows * columns > _MAX_CELLS:
                raise DocumentError("parse", f"too large: a sheet of {rows} x {columns} cells, limit {_MAX_CELLS}")


def read_workbook(workbook: bytes, codes: Mapping[str, FormatCodes]) -> list[Sheet]:
    """Reads the visible sheets. Charts that are sheets have no rows."""
    try:
        book = CalamineWorkbook.from_filelike(BytesIO(workbook))
        visible = [sheet for sheet in book.sheets_metadata if sheet.visible == SheetVisibleEnum.Visible]
        sheets: list[Sheet] = []
        for sheet in visible:
            if sheet.typ == SheetTypeEnum.ChartSheet:
                sheets.append((sheet.name, []))
            elif sheet.typ == SheetTypeEnum.WorkSheet:
                rows = _read_rows(book.get_sheet_by_name(sheet.name), codes.get(sheet.name, {}))
                sheets.append((sheet.name, rows))
        return sheets
    except PasswordError as error:
        raise DocumentError("parse", "password protected") from error
    except (CalamineError, ValueError, OverflowError) as error:
        raise DocumentError("parse", f"damaged workbook: {error}") from error
    except BaseException as error:
        # calamine panics on some damaged bytes, and no module exports the type of that exception
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise DocumentError("parse", f"damaged workbook: {error}") from error


def _read_rows(sheet: CalamineSheet, codes: FormatCodes) -> list[list[Cell]]:
    # calamine starts at the first row, but at the first column that is filled
    indent = [""] * (sheet.start or (0, 0))[1]
    texts = [[*indent, *map(_cell_text, row)] for row in sheet.iter_rows()]
    for (row_index, column), code in codes.items():
        if row_index < len(texts) and column < len(texts[row_index]):
            texts[row_index][column] = apply_format(texts[row_index][column], code)
    rows: list[list[Cell]] = [list(row) for row in texts]
    for (top, left), (bottom, right) in sheet.merged_cell_ranges or ():
        if (bottom - top + 1) * (right - left + 1) > _MAX_MERGED_CELLS:
            continue
        for row_index, row in enumerate(rows[top : bottom + 1], top):
            width = len(row[left : right + 1])
            covered = CoveredBy.LEFT if row_index == top else CoveredBy.ABOVE
            first: Cell = row[left] if row_index == top and width else CoveredBy.ABOVE
            row[left : left + width] = [first, *[covered] * (width - 1)][:width]
    return rows


def read_legacy_workbook(body: bytes) -> list[Sheet]:
    try:
        book = xlrd.open_workbook(file_contents=body, logfile=StringIO(), ragged_rows=True)
        sheets: list[Sheet] = []
        for sheet in book.sheets():
            if not sheet.visibility:
                rows = [sheet.row(index) for index in range(sheet.nrows)]
                sheets.append((sheet.name, [[_legacy_cell_text(cell, book.datemode) for cell in row] for row in rows]))
        return sheets
    except Exception as error:  # xlrd raises any exception at all on damaged bytes
        reason = "password protected" if "encrypted" in str(error) else f"damaged workbook: {error}"
        raise DocumentError("parse", reason) from error


def _legacy_cell_text(cell: xlrd.sheet.Cell, datemode: Literal[0, 1]) -> str:
    match cell.ctype:
        case xlrd.XL_CELL_BOOLEAN:
            return _cell_text(bool(cell.value))
        case xlrd.XL_CELL_DATE:
            value = float(cell.value)
            try:
                moment = xlrd.xldate_as_datetime(value, datemode)
            except (xlrd.xldate.XLDateError, OverflowError):
                return format_number(value)
            return _cell_text(moment.time() if 0 <= value < 1 else moment)
        case xlrd.XL_CELL_ERROR:
            return ""
        case _:
            return _cell_text(cell.value)


def _cell_text(value: int | float | str | bool | time | date | datetime | timedelta) -> str:
    match value:
        case str():
            return _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), value) if "_x" in value else value
        case bool():
            return str(value).upper()
        case float():
            return format_number(value)
        case datetime():
            return value.isoformat(" ", "seconds").removesuffix(" 00:00:00")
        case timedelta():
            return f"{value.total_seconds() // 3600:.0f}:{value.seconds // 60 % 60:02d}:{value.seconds % 60:02d}"
        case _:
            return str(value)
