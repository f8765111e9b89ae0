"""Tables with known heads, generated from a seed and rendered to PDF, XLSX and HTML."""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from random import Random

import pypdfium2
import pypdfium2.raw as pdfium

from benchmarks.archives import zip_bytes

_METRICS = ("Revenue", "Operating cost", "Net income", "Margin", "Head count", "Capital spent", "Orders")
_LABELS = (
    "Cash and cash equivalents",
    "Receivables",
    "Inventories",
    "Prepaid expenses and other assets",
    "Goodwill",
    "Property, plant and equipment",
    "Accounts payable",
    "Accrued liabilities",
    "Deferred revenue",
    "Long-term debt",
    "Retained earnings",
    "Treasury stock",
    "Lease obligations",
    "Income taxes",
)
_SECTIONS = ("Current assets:", "Liabilities", "Equity of the owners", "Other items:")
_PARAGRAPH = (
    "The figures of this table come from the books of the company, which its auditors have read and signed,",
    "and they are stated in thousands unless a note says otherwise.",
)
_WIDTH, _HEIGHT, _MARGIN = 612, 792, 60
_LABEL_WIDTH = 170


@dataclass(frozen=True)
class SourceTable:
    """A table and how it is rendered.

    `groups` are the heads above the column heads, each with its number of columns; empty for heads of one level. The
    rows hold a label and values; a row without values is the heading of a section. `signed_rows` have a currency sign
    in a column of its own. `page_rows` is the number of rows on a page.
    """

    title: str
    label_head: str
    groups: tuple[tuple[str, int], ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    footnotes: tuple[str, ...]
    signed_rows: frozenset[int]
    ruled: bool
    centred: bool
    merged: bool
    page_rows: int
    repeats_heads: bool

    @property
    def joined_heads(self) -> list[str]:
        """The head of each value column, with all levels."""
        above = [group for group, width in self.groups for _ in range(width)] or [""] * len(self.heads)
        return [" / ".join(filter(None, levels)) for levels in zip(above, self.heads, strict=True)]

    def sign(self, row: int, value: str) -> str:
        return "$" if row in self.signed_rows and value and "%" not in value else ""


def generate_tables(seed: int, count: int) -> list[SourceTable]:
    random = Random(seed)
    return [_generate_table(random, number) for number in range(count)]


def _generate_table(random: Random, number: int) -> SourceTable:
    years = [str(year) for year in sorted(random.sample(range(2012, 2025), random.choice((2, 3))), reverse=True)]
    groups: tuple[tuple[str, int], ...] = ()
    match number % 4:
        case 0:
            heads = tuple(years)
        case 1:
            heads = tuple(random.sample(_METRICS, random.choice((2, 3, 4))))
        case 2:
            metrics = random.sample(_METRICS, 2)
            heads = tuple(metrics * len(years))
            groups = tuple((year, 2) for year in years)
        case _:
            heads = tuple(years * 2)
            groups = tuple((name, len(years)) for name in random.sample(_METRICS, 2))
    rows = _generate_rows(random, len(heads), random.choice((5, 9, 14, 30)))
    data = [index for index, row in enumerate(rows) if any(row[1:])]
    is_signed = number % 3 == 0
    return SourceTable(
        title=f"Table {number + 1}. Figures of the company",
        label_head=random.choice(("", "Item", "Region")),
        groups=groups,
        heads=heads,
        rows=rows,
        footnotes=("(1) Restated after the sale of a mill.", "(2) Not audited.") if random.random() < 0.5 else (),
        signed_rows=frozenset((data[0], data[-1]) if is_signed else ()),
        ruled=random.random() < 0.5,
        centred=random.random() < 0.5,
        merged=random.random() < 0.6,
        page_rows=12 if len(rows) > 14 else 40,
        repeats_heads=random.random() < 0.5,
    )


def _generate_rows(random: Random, columns: int, count: int) -> tuple[tuple[str, ...], ...]:
    labels = [f"{label}{f' {part}' if part else ''}" for part in ("", "abroad", "at home") for label in _LABELS]
    numbers = iter(random.sample(range(1000, 99_999), count * columns))
    rows: list[tuple[str, ...]] = []
    has_sections = random.random() < 0.5
    for index, label in enumerate(labels[:count]):
        if has_sections and index % 5 == 0 and index // 5 < len(_SECTIONS):
            rows.append((_SECTIONS[index // 5], *[""] * columns))
        values = [_format_number(random, next(numbers)) for _ in range(columns)]
        if random.random() < 0.1:
            values[random.randrange(columns)] = ""
        rows.append((label, *values))
    return tuple(rows)


def _format_number(random: Random, number: int) -> str:
    kind = random.random()
    return f"({number:,})" if kind < 0.15 else f"{number / 1000:.3f}%" if kind < 0.25 else f"{number:,}"


def render_html(table: SourceTable) -> bytes:
    """The page with the table. Signs have a column of their own if the table has any; a head spans both."""
    width = 2 if table.signed_rows else 1
    tag = "th" if table.merged else "td"
    above = f'<{tag} rowspan="{2 if table.groups else 1}">{table.label_head}</{tag}>'
    groups = "".join(f'<{tag} colspan="{count * width}">{group}</{tag}>' for group, count in table.groups)
    heads = "".join(f'<{tag} colspan="{width}">{head}</{tag}>' for head in table.heads)
    head_rows = [above + groups, heads] if groups else [above + heads]
    rows = [
        f"<td>{escape(row[0])}</td>"
        + "".join(
            f"{f'<td>{table.sign(index, value)}</td>' if width == 2 else ''}<td>{value}</td>" for value in row[1:]
        )
        for index, row in enumerate(table.rows)
    ]
    head, body = ("".join(f"<tr>{row}</tr>" for row in part) for part in (head_rows, rows))
    notes = "".join(f"<p>{note}</p>" for note in table.footnotes)
    content = f"<thead>{head}</thead><tbody>{body}</tbody>" if table.merged else head + body
    return f"<html><body><h1>{table.title}</h1><table>{content}</table>{notes}</body></html>".encode()


def render_xlsx(table: SourceTable) -> bytes:
    """The workbook. Its sheet has the title and the footnotes next to the table, without an empty row."""
    width = 2 if table.signed_rows else 1
    merges: list[str] = []
    rows: list[list[str]] = [[table.title]]
    if table.groups:
        groups = [table.label_head if table.merged else ""]
        for group, count in table.groups:
            first = len(groups)
            groups += [group, *[""] * (count * width - 1)]
            merges += [f"{_cell_name(2, first)}:{_cell_name(2, len(groups) - 1)}"] if table.merged else []
        merges += [f"{_cell_name(2, 0)}:{_cell_name(3, 0)}"] if table.merged else []
        rows.append(groups)
    heads = [cell for head in table.heads for cell in (head, "")[:width]]
    rows.append(["" if table.groups and table.merged else table.label_head, *heads])
    for index, row in enumerate(table.rows):
        cells = [cell for value in row[1:] for cell in (table.sign(index, value), value)[2 - width :]]
        rows.append([row[0], *cells])
    rows += [[note] for note in table.footnotes]
    return _pack_workbook(rows, merges)


def _cell_name(row: int, column: int) -> str:
    """The name of the cell; rows count from 1, columns from 0."""
    return f"{chr(ord('A') + column)}{row}"


def _pack_workbook(rows: Sequence[Sequence[str]], merges: Sequence[str]) -> bytes:
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    packages = "http://schemas.openxmlformats.org/package/2006/relationships"
    lines = "".join(
        f'<row r="{number}">'
        + "".join(
            f'<c r="{_cell_name(number, column)}" t="inlineStr"><is><t>{escape(cell)}</t></is></c>'
            for column, cell in enumerate(row)
            if cell
        )
        + "</row>"
        for number, row in enumerate(rows, 1)
    )
    merged = "".join(f'<mergeCell ref="{area}"/>' for area in merges)
    merged = f"<mergeCells>{merged}</mergeCells>" if merged else ""
    parts: dict[str, bytes | str] = {
        "_rels/.rels": f'<Relationships xmlns="{packages}"><Relationship Id="a" Type="{kinds}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{kinds}"><sheets><sheet name="Figures" sheetId="1" '
        'r:id="a"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{packages}"><Relationship Id="a" '
        f'Type="{kinds}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{lines}</sheetData>{merged}</worksheet>',
    }
    return zip_bytes(parts)


def render_pdf(table: SourceTable) -> bytes:
    """The document, on as many pages as its rows need, each with a header and a page number."""
    with pypdfium2.PdfDocument.new() as pdf:
        for number, start in enumerate(range(0, len(table.rows), table.page_rows), 1):
            page = _PdfPage(pdf, 9.0)
            page.write("Annual report", _MARGIN, _HEIGHT - 30)
            page.write(str(number), _WIDTH / 2, 30)
            if start == 0:
                for line in (*_PARAGRAPH, table.title):
                    page.write(line, _MARGIN, page.next_line(1.3))
                page.next_line(0.8)
            if start == 0 or table.repeats_heads:
                _draw_heads(page, table)
            for index in range(start, min(start + table.page_rows, len(table.rows))):
                _draw_row(page, table, index)
            if start + table.page_rows >= len(table.rows):
                for note in (*table.footnotes, *_PARAGRAPH):
                    page.write(note, _MARGIN, page.next_line(1.6))
            page.finish()
        out = BytesIO()
        pdf.save(out)
        return out.getvalue()


class _PdfPage:
    def __init__(self, pdf: pypdfium2.PdfDocument, size: float) -> None:
        self._pdf, self._size, self._page, self._y = pdf, size, pdf.new_page(_WIDTH, _HEIGHT), _HEIGHT - 80.0

    def next_line(self, step: float) -> float:
        """Moves down by `step` sizes of the letters, and returns the new baseline."""
        self._y -= step * self._size
        return self._y

    def write(self, text: str, x: float, y: float, align: float = 0.0) -> None:
        """Writes the text to the right of `x`; `align` is the share of its width by which it moves left."""
        letters, width = self._letters(text)
        pdfium.FPDFPageObj_Transform(letters, 1, 0, 0, 1, x - align * width, y)
        pdfium.FPDFPage_InsertObject(self._page, letters)

    def wrap(self, text: str, width: float) -> list[str]:
        """The lines of the text, no wider than `width` unless one word is."""
        lines: list[str] = []
        for word in text.split():
            if lines and self._letters(f"{lines[-1]} {word}")[1] <= width:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
        return lines

    def _letters(self, text: str) -> tuple[pdfium.FPDF_PAGEOBJECT, float]:
        """The text as an object of a page, and its width."""
        letters = pdfium.FPDFPageObj_NewTextObj(self._pdf, b"Helvetica", self._size)
        wide = f"{text}\0".encode("utf-16-le")
        pdfium.FPDFText_SetText(letters, (ctypes.c_ushort * (len(wide) // 2)).from_buffer_copy(wide))
        ends = [ctypes.c_float() for _ in range(4)]
        pdfium.FPDFPageObj_GetBounds(letters, *ends)
        return letters, ends[2].value - ends[0].value

    def rule(self, left: float, right: float, y: float) -> None:
        line = pdfium.FPDFPageObj_CreateNewRect(left, y, right - left, 0.5)
        pdfium.FPDFPath_SetDrawMode(line, pdfium.FPDF_FILLMODE_ALTERNATE, False)
        pdfium.FPDFPage_InsertObject(self._page, line)

    def finish(self) -> None:
        self._page.gen_content()
        self._page.close()


def _column_boxes(table: SourceTable) -> list[tuple[float, float]]:
    """The left and right end of each value column."""
    width = min((_WIDTH - 2 * _MARGIN - _LABEL_WIDTH) / len(table.heads), 95.0)
    first = _MARGIN + _LABEL_WIDTH
    return [(first + n * width + 6, first + (n + 1) * width) for n in range(len(table.heads))]


def _draw_heads(page: _PdfPage, table: SourceTable) -> None:
    boxes, first = _column_boxes(table), 0
    if table.groups:
        y = page.next_line(1.5)
        for group, count in table.groups:
            left, right = boxes[first][0], boxes[first + count - 1][1]
            page.write(group, (left + right) / 2, y, 0.5)
            if table.ruled:
                page.rule(left, right, y - 3)
            first += count
    wrapped = [page.wrap(head, right - left) for head, (left, right) in zip(table.heads, boxes, strict=True)]
    height = max(map(len, wrapped))
    for line in range(height):
        y = page.next_line(1.2 if line else 1.5)
        for lines, (left, right) in zip(wrapped, boxes, strict=True):
            if line >= height - len(lines):
                text = lines[line - height + len(lines)]
                page.write(text, (left + right) / 2 if table.centred else right, y, 0.5 if table.centred else 1.0)
    if table.label_head:
        page.write(table.label_head, _MARGIN, y)
    if table.ruled:
        page.rule(_MARGIN, boxes[-1][1], y - 3)


def _draw_row(page: _PdfPage, table: SourceTable, index: int) -> None:
    y, row = page.next_line(1.6 if table.ruled else 1.35), table.rows[index]
    page.write(row[0], _MARGIN, y)
    for value, (left, right) in zip(row[1:], _column_boxes(table), strict=True):
        if sign := table.sign(index, value):
            page.write(sign, left, y)
        if value:
            page.write(value, right, y, 1.0)


def data_cells(table: SourceTable) -> Iterator[tuple[str, str, str]]:
    """Yields (label, head, value) of each value, with its currency sign."""
    for index, row in enumerate(table.rows):
        for head, value in zip(table.joined_heads, row[1:], strict=True):
            if value:
                yield row[0], head, f"{table.sign(index, value)}{value}"
