"""The content that OpenDocument texts, sheets and slides share: paragraphs, lists, tables, drawings, notes."""

import posixpath
import re
from collections.abc import Iterator

from rag_core.errors import DocumentError
from rag_core.parsing.archive import Archive
from rag_core.parsing.blocks import Block, comment, heading, list_item, paragraph
from rag_core.parsing.office.drawings import alternative_text
from rag_core.parsing.office.opendocument_styles import SCHEMA, STYLE, TEXT, ListMarkers, OpenDocumentStyles
from rag_core.parsing.office.paragraph_text import ParagraphText
from rag_core.parsing.safe_xml import Element, child_elements, element_text, parse_xml
from rag_core.parsing.tables import Cell, CoveredBy, join_cells, table

OFFICE = f"{{{SCHEMA}:office:1.0}}"
TABLE = f"{{{SCHEMA}:table:1.0}}"
DRAW = f"{{{SCHEMA}:drawing:1.0}}"

_VECTOR = f"{{{SCHEMA}:svg-compatible:1.0}}"
_STYLE_NAME = f"{TEXT}style-name"
_TEXT_POSITION = f"{STYLE}text-position"
_LINK = "{http://www.w3.org/1999/xlink}href"
_MATH = "{http://www.w3.org/1998/Math/MathML}"
_CREATOR = "{http://purl.org/dc/elements/1.1/}creator"

_SKIPPED = {
    *(f"{TEXT}{name}" for name in ("tracked-changes", "table-of-content", "hidden-text", "hidden-paragraph")),
    *(f"{TEXT}{name}" for name in ("page-number", "page-count", "ruby-text", "sequence-decls", "variable-decls")),
    *(f"{TEXT}{name}-index" for name in ("alphabetical", "illustration", "table", "object", "user")),
    *(f"{OFFICE}{name}" for name in ("forms", "scripts", "event-listeners", "annotation-end")),
}
_CHARACTERS = {f"{TEXT}tab": " ", f"{TEXT}line-break": "\n", f"{TEXT}s": " "}
_ROW_GROUPS = {f"{TABLE}{name}" for name in ("table-header-rows", "table-row-group", "table-rows")}
_COVERED_CELL = f"{TABLE}covered-table-cell"
_CELLS = {f"{TABLE}table-cell", _COVERED_CELL}
_WHITE_SPACE = re.compile(r"\s+")
# A file states how often a cell or row is repeated. More repeats add no information, and more empty rows are not
# needed to separate tables.
_MAX_REPEATS = 100
_MAX_REPEATED_CHARS = 200
_MAX_EMPTY_ROWS = 4
_MAX_CELLS = 16_000_000


class ContentReader:
    """Reads the content of one document in its order, and counts its notes and list items."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.root = parse_xml(archive.read("content.xml"))
        self.styles_root = parse_xml(archive.read("styles.xml")) if "styles.xml" in archive else self.root
        self._styles = OpenDocumentStyles((self.styles_root, self.root))
        self._markers = ListMarkers(self._styles)
        self._notes: list[str] = []
        self._cell_count = 0

    def blocks(self, container: Element) -> Iterator[Block]:
        for child in child_elements(container):
            tag = str(child.tag)
            if tag == f"{TEXT}p":
                line = self._read_paragraph(child)
                is_title = self._styles.is_title(child.get(_STYLE_NAME, ""))
                yield heading(1, line.text) if is_title else paragraph(line.text)
                yield from line.following
            elif tag == f"{TEXT}h":
                yield from self._heading_blocks(child)
            elif tag == f"{TEXT}list":
                yield from self._list_blocks(child, "", 0)
            elif tag == f"{TABLE}table":
                yield table(self.rows(child, []))
            elif tag.startswith(DRAW):
                yield from self.shape_blocks(child)
            elif tag not in _SKIPPED and child.get(f"{TEXT}display") != "none":
                yield from self.blocks(child)

    def shape_blocks(self, element: Element) -> Iterator[Block]:
        """Yields a drawing's alternative text, texts, tables and charts."""
        for description in element.iterfind(f"{_VECTOR}desc"):
            yield paragraph(alternative_text(element_text(description)))
        if element.tag == f"{DRAW}object":
            root = self._parse_object(element)
            for embedded in () if root is None else root.iter(f"{TABLE}table"):
                yield table(self.rows(embedded, []))
        else:
            yield from self.blocks(element)

    def note_blocks(self) -> Iterator[Block]:
        """Yields the footnotes and endnotes that have been read so far."""
        for number, text in enumerate(self._notes, 1):
            yield paragraph(f"[^{number}]: {text}")

    def rows(self, element: Element, comments: list[Block], max_repeats: int = _MAX_REPEATS) -> Iterator[list[Cell]]:
        """Yields the rows of a table, and appends the comments on its cells to `comments`.

        A repeated row or cell occurs at most `max_repeats` times. Raises DocumentError if a document has more than
        16,000,000 cells.
        """
        for child in child_elements(element):
            if child.tag in _ROW_GROUPS:
                yield from self.rows(child, comments, max_repeats)
            elif child.tag == f"{TABLE}table-row":
                row = self._read_row(child, comments, max_repeats)
                yield row
                max_rows = max_repeats if row else _MAX_EMPTY_ROWS
                for _ in range(1, min(_repeat_count(child, "number-rows-repeated"), max_rows)):
                    self._add_to_cell_count(len(row))
                    yield [CoveredBy.ABOVE if isinstance(cell, str) else cell for cell in row]

    def is_hidden(self, sheet: Element) -> bool:
        style = sheet.get(f"{TABLE}style-name", "")
        return self._styles.find_property(style, "table-properties", f"{TABLE}display") == "false"

    def _heading_blocks(self, element: Element) -> Iterator[Block]:
        line = self._read_paragraph(element)
        level = element.get(f"{TEXT}outline-level", "1")
        yield heading(int(level) if level.isdecimal() and int(level) > 0 else 1, line.text)
        yield from line.following

    def _list_blocks(self, element: Element, style: str, level: int) -> Iterator[Block]:
        """Yields the items of a list at `level`, which counts from 0. A list without a style has that of its parent."""
        style = element.get(_STYLE_NAME, style)
        if element.get(f"{TEXT}continue-numbering") != "true":
            self._markers.restart(style, level)
        for item in child_elements(element):
            marker = self._markers.next_marker(style, level) if item.tag == f"{TEXT}list-item" else ""
            for child in child_elements(item):
                if child.tag == f"{TEXT}list":
                    yield from self._list_blocks(child, style, level + 1)
                elif child.tag == f"{TEXT}p":
                    line = self._read_paragraph(child)
                    yield list_item(line.text, marker, level) if marker else paragraph(line.text)
                    yield from line.following
                    marker = ""
                elif child.tag == f"{TEXT}h":
                    yield from self._heading_blocks(child)

    def _read_paragraph(self, element: Element) -> ParagraphText:
        line = ParagraphText()
        self._read_into(line, element)
        return line

    def _read_into(self, line: ParagraphText, element: Element) -> None:
        line.pieces.append(_WHITE_SPACE.sub(" ", element.text or ""))
        for child in child_elements(element):
            tag = str(child.tag)
            if tag in _CHARACTERS:
                line.pieces.append(_CHARACTERS[tag])
            elif tag == f"{TEXT}note":
                line.pieces.append(self._read_note(child))
            elif tag == f"{OFFICE}annotation":
                line.following.append(self._comment_block(child))
            elif tag.startswith(DRAW) and tag != f"{DRAW}a":
                formulas = [text for object in child.iterfind(f"{DRAW}object") if (text := self._read_formula(object))]
                line.pieces.extend(f" {text} " for text in formulas)
                line.following.extend([] if formulas else self.shape_blocks(child))
            elif tag not in _SKIPPED:
                start = len(line.pieces)
                self._read_into(line, child)
                position = self._styles.find_property(child.get(_STYLE_NAME, ""), "text-properties", _TEXT_POSITION)
                if position.startswith("super"):
                    line.mark_exponent(start)
            line.pieces.append(_WHITE_SPACE.sub(" ", child.tail or ""))

    def _read_note(self, element: Element) -> str:
        """Stores a note's text and returns the reference to it."""
        body = element.find(f"{TEXT}note-body")
        index = len(self._notes)
        self._notes.append("")  # reserves the number: the text can refer to further notes
        self._notes[index] = "" if body is None else self._read_line(body)
        return f"[^{index + 1}]"

    def _comment_block(self, element: Element) -> Block:
        texts = [child for child in child_elements(element) if str(child.tag).startswith(TEXT)]
        return comment(element_text(element.find(_CREATOR)), " ".join(map(element_text, texts)))

    def _read_line(self, container: Element) -> str:
        """The text of a note or a table cell on one line; tables in it cell by cell."""
        texts: list[str] = []
        for child in child_elements(container):
            tag = str(child.tag)
            if tag == f"{TABLE}table":
                texts.append(join_cells(self.rows(child, [], max_repeats=1)))
            elif tag == f"{TEXT}p":
                line = self._read_paragraph(child)
                texts += [line.text.strip(), *(block.text for block in line.following)]
            elif tag == f"{TEXT}h":
                texts.append(self._read_paragraph(child).text.strip())
            elif tag == f"{TEXT}list":
                texts += [block.text for block in self._list_blocks(child, "", 0)]
            elif tag.startswith((DRAW, f"{TEXT}section")) and child.get(f"{TEXT}display") != "none":
                texts += [block.text for block in self.shape_blocks(child)]
        return " ".join(filter(None, texts))

    def _read_row(self, row: Element, comments: list[Block], max_repeats: int) -> list[Cell]:
        cells: list[Cell] = []
        span_end = 0
        for cell in child_elements(row):
            if cell.tag not in _CELLS:
                continue
            repeats = min(_repeat_count(cell, "number-columns-repeated"), max_repeats)
            if cell.tag == _COVERED_CELL:
                # len(cells) grows while extend() runs; to change that changes texts and requires another VERSION
                cells.extend(
                    CoveredBy.LEFT if len(cells) + index < span_end else CoveredBy.ABOVE for index in range(repeats)
                )
                continue
            span_end = len(cells) + _repeat_count(cell, "number-columns-spanned")
            comments.extend(map(self._comment_block, cell.iterchildren(f"{OFFICE}annotation")))
            text = (self._read_line(cell) if len(cell) else "") or cell.get(f"{OFFICE}value", "")
            cells.extend([text, *[text if len(text) <= _MAX_REPEATED_CHARS else ""] * (repeats - 1)])
            self._add_to_cell_count(repeats)
        while cells and cells[-1] == "":
            cells.pop()
        return cells

    def _add_to_cell_count(self, count: int) -> None:
        self._cell_count += count
        if self._cell_count > _MAX_CELLS:
            raise DocumentError("parse", f"too large: more than {_MAX_CELLS} cells")

    def _read_formula(self, element: Element) -> str:
        """The formula as its author typed it; empty if the object is not a formula."""
        root = self._parse_object(element)
        if root is None or not str(root.tag).startswith(_MATH):
            return ""
        annotation = root.find(f".//{_MATH}annotation")
        return element_text(root if annotation is None else annotation)

    def _parse_object(self, element: Element) -> Element | None:
        name = posixpath.normpath(f"{element.get(_LINK, '')}/content.xml")
        return parse_xml(self._archive.read(name)) if name in self._archive else None


def _repeat_count(element: Element, attribute: str) -> int:
    count = element.get(f"{TABLE}{attribute}", "1")
    return int(count) if count.isdecimal() and len(count) < 9 else 1
