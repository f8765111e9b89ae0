"""What stands in an OpenDocument, whatever its kind: paragraphs, lists, tables, drawings, notes."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rag_core.errors import DocumentError
from rag_core.parsing.archive import Archive
from rag_core.parsing.blocks import Block, comment, heading, listed, paragraph
from rag_core.parsing.office.drawings import alternative
from rag_core.parsing.office.numbering import written
from rag_core.parsing.safe_xml import Element, elements, parsed, spoken
from rag_core.parsing.tables import Cell, Covered, flat, table

SCHEMA = "urn:oasis:names:tc:opendocument:xmlns"
OFFICE = f"{{{SCHEMA}:office:1.0}}"
STYLE = f"{{{SCHEMA}:style:1.0}}"
TABLE = f"{{{SCHEMA}:table:1.0}}"
DRAW = f"{{{SCHEMA}:drawing:1.0}}"

_TEXT = f"{{{SCHEMA}:text:1.0}}"
_VECTOR = f"{{{SCHEMA}:svg-compatible:1.0}}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_MATH = "{http://www.w3.org/1998/Math/MathML}"
_CREATOR = "{http://purl.org/dc/elements/1.1/}creator"

_UNREAD = {
    *(f"{_TEXT}{name}" for name in ("tracked-changes", "table-of-content", "hidden-text", "hidden-paragraph")),
    *(f"{_TEXT}{name}" for name in ("page-number", "page-count", "ruby-text", "sequence-decls", "variable-decls")),
    *(f"{_TEXT}{name}-index" for name in ("alphabetical", "illustration", "table", "object", "user")),
    *(f"{OFFICE}{name}" for name in ("forms", "scripts", "event-listeners", "annotation-end")),
}
_CHARACTERS = {f"{_TEXT}tab": " ", f"{_TEXT}line-break": "\n", f"{_TEXT}s": " "}
_ROWS = {f"{TABLE}{name}" for name in ("table-header-rows", "table-row-group", "table-rows")}
_CELLS = {f"{TABLE}table-cell", f"{TABLE}covered-table-cell"}
_FORMATS = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_SPACES = re.compile(r"\s+")
_POWER = re.compile(r"[-\u2212+]?\d+")
_DEEPEST_CHAIN = 16
# A repeated cell or row says nothing new, and empty ones need only part what stands on both sides
_MOST_REPEATED = 100
_LONGEST_REPEATED = 200
_MOST_EMPTY = 4
_MOST_CELLS = 16_000_000


@dataclass(frozen=True, slots=True)
class _Line:
    """A paragraph's text in pieces, and what hangs on it and follows it."""

    pieces: list[str] = field(default_factory=list)
    after: list[Block] = field(default_factory=list)


class Reading:
    """One document from its beginning to its end: notes and lists are counted on the way."""

    def __init__(self, archive: Archive, folder: str = "") -> None:
        self._archive, self._folder = archive, folder
        self.root = parsed(archive.read(f"{folder}content.xml"))
        self.styles = parsed(archive.read("styles.xml")) if "styles.xml" in archive else self.root
        self._named = {
            each.get(f"{STYLE}name", ""): each
            for root in (self.styles, self.root)
            for each in root.iter(f"{STYLE}style", f"{_TEXT}list-style")
        }
        self._notes: list[str] = []
        self._counts: dict[tuple[str, int], int] = {}
        self._cells = 0

    def blocks(self, container: Element) -> Iterator[Block]:
        for child in elements(container):
            tag = str(child.tag)
            if tag == f"{_TEXT}p":
                yield from self._paragraph(child)
            elif tag == f"{_TEXT}h":
                yield from self._heading(child)
            elif tag == f"{_TEXT}list":
                yield from self._list(child, "", 0)
            elif tag == f"{TABLE}table":
                yield table(self.rows(child, []))
            elif tag.startswith(DRAW):
                yield from self.shape(child)
            elif tag not in _UNREAD and child.get(f"{_TEXT}display") != "none":
                yield from self.blocks(child)

    def shape(self, element: Element) -> Iterator[Block]:
        """A drawing's texts, tables, charts and alternative text."""
        for described in element.iterfind(f"{_VECTOR}desc"):
            yield paragraph(alternative(spoken(described)))
        if element.tag == f"{DRAW}object":
            yield from self._embedded(element)
        else:
            yield from self.blocks(element)

    def noted(self) -> Iterator[Block]:
        for number, text in enumerate(self._notes, 1):
            yield paragraph(f"[^{number}]: {text}")

    def rows(self, element: Element, said: list[Block], repeated: int = _MOST_REPEATED) -> Iterator[list[Cell]]:
        """The comments that hang on cells go to `said`. What the file repeats stands here at most `repeated` times."""
        for child in elements(element):
            if child.tag in _ROWS:
                yield from self.rows(child, said, repeated)
            elif child.tag == f"{TABLE}table-row":
                row = self._row(child, said, repeated)
                yield row
                most = repeated if row else _MOST_EMPTY
                for _ in range(1, min(_count(child, "number-rows-repeated"), most)):
                    self._measure(len(row))
                    yield [Covered.ABOVE if isinstance(cell, str) else cell for cell in row]

    def is_hidden(self, sheet: Element) -> bool:
        style = self._named.get(sheet.get(f"{TABLE}style-name", ""))
        shown = None if style is None else style.find(f"{STYLE}table-properties")
        return shown is not None and shown.get(f"{TABLE}display") == "false"

    def _measure(self, cells: int) -> None:
        self._cells += cells
        if self._cells > _MOST_CELLS:
            raise DocumentError("parse", f"too large: more than {_MOST_CELLS} cells")

    def _paragraph(self, element: Element) -> Iterator[Block]:
        line = self._read(element)
        text = "".join(line.pieces)
        yield heading(1, text) if self._is_title(element) else paragraph(text)
        yield from line.after

    def _heading(self, element: Element) -> Iterator[Block]:
        line = self._read(element)
        level = element.get(f"{_TEXT}outline-level", "1")
        yield heading(int(level) if level.isdecimal() and int(level) > 0 else 1, "".join(line.pieces))
        yield from line.after

    def _list(self, element: Element, style: str, level: int) -> Iterator[Block]:
        style = element.get(f"{_TEXT}style-name", style)
        if element.get(f"{_TEXT}continue-numbering") != "true":
            self._counts.pop((style, level), None)
        for item in elements(element):
            marker = self._marker(style, level) if item.tag == f"{_TEXT}list-item" else ""
            for child in elements(item):
                if child.tag == f"{_TEXT}list":
                    yield from self._list(child, style, level + 1)
                elif child.tag == f"{_TEXT}p":
                    yield from self._listed(child, marker, level)
                    marker = ""
                elif child.tag == f"{_TEXT}h":
                    yield from self._heading(child)

    def _listed(self, element: Element, marker: str, level: int) -> Iterator[Block]:
        line = self._read(element)
        text = "".join(line.pieces)
        yield listed(text, marker, level) if marker else paragraph(text)
        yield from line.after

    def _marker(self, style: str, level: int) -> str:
        known = self._named.get(style)
        levels = () if known is None else known.iterchildren(f"{_TEXT}list-level-style-number")
        own = next((each for each in levels if each.get(f"{_TEXT}level") == str(level + 1)), None)
        format = "" if own is None else own.get(f"{STYLE}num-format", "")
        if own is None or format not in _FORMATS:
            return "-"
        start = own.get(f"{_TEXT}start-value", "1")
        first = int(start) if start.isdecimal() else 1
        self._counts[style, level] = self._counts.get((style, level), first - 1) + 1
        number = written(self._counts[style, level], _FORMATS[format])
        return f"{own.get(f'{STYLE}num-prefix', '')}{number}{own.get(f'{STYLE}num-suffix', '')}" or "-"

    def _read(self, element: Element) -> _Line:
        line = _Line()
        self._read_into(line, element)
        return line

    def _read_into(self, line: _Line, element: Element) -> None:
        line.pieces.append(_SPACES.sub(" ", element.text or ""))
        for child in elements(element):
            tag = str(child.tag)
            if tag in _CHARACTERS:
                line.pieces.append(_CHARACTERS[tag])
            elif tag == f"{_TEXT}note":
                line.pieces.append(self._note(child))
            elif tag == f"{OFFICE}annotation":
                line.after.append(self._comment(child))
            elif tag.startswith(DRAW) and tag != f"{DRAW}a":
                self._draw(line, child)
            elif tag not in _UNREAD:
                self._read_span(line, child)
            line.pieces.append(_SPACES.sub(" ", child.tail or ""))

    def _read_span(self, line: _Line, span: Element) -> None:
        start = len(line.pieces)
        self._read_into(line, span)
        style = self._named.get(span.get(f"{_TEXT}style-name", ""))
        shown = None if style is None else style.find(f"{STYLE}text-properties")
        is_raised = shown is not None and shown.get(f"{STYLE}text-position", "").startswith("super")
        if is_raised and _POWER.fullmatch("".join(line.pieces[start:])):
            line.pieces.insert(start, "^")

    def _draw(self, line: _Line, shape: Element) -> None:
        formulas = [text for each in shape.iterfind(f"{DRAW}object") if (text := self._formula(each))]
        line.pieces.extend(f" {text} " for text in formulas)
        line.after.extend([] if formulas else self.shape(shape))

    def _note(self, element: Element) -> str:
        body = element.find(f"{_TEXT}note-body")
        place = len(self._notes)
        self._notes.append("")
        self._notes[place] = "" if body is None else self._told(body)
        return f"[^{place + 1}]"

    def _comment(self, element: Element) -> Block:
        said = [each for each in elements(element) if str(each.tag).startswith(_TEXT)]
        return comment(spoken(element.find(_CREATOR)), " ".join(map(spoken, said)))

    def _told(self, container: Element) -> str:
        """On one line, a table cell by cell."""
        texts: list[str] = []
        for child in elements(container):
            if child.tag == f"{TABLE}table":
                texts.append(flat(self.rows(child, [], repeated=1)))
            else:
                texts.extend(block.text for block in self._within(child))
        return " ".join(filter(None, texts))

    def _within(self, child: Element) -> Iterator[Block]:
        if child.tag == f"{_TEXT}p":
            line = self._read(child)
            yield Block("".join(line.pieces).strip())
            yield from line.after
        elif child.tag == f"{_TEXT}list":
            yield from self._list(child, "", 0)
        elif str(child.tag).startswith((DRAW, f"{_TEXT}section")) and child.get(f"{_TEXT}display") != "none":
            yield from self.shape(child)
        elif child.tag == f"{_TEXT}h":
            yield Block("".join(self._read(child).pieces).strip())

    def _row(self, row: Element, said: list[Block], most: int) -> list[Cell]:
        cells: list[Cell] = []
        reach = 0
        for cell in elements(row):
            if cell.tag not in _CELLS:
                continue
            repeated = min(_count(cell, "number-columns-repeated"), most)
            if cell.tag == f"{TABLE}covered-table-cell":
                cells.extend(Covered.LEFT if len(cells) + each < reach else Covered.ABOVE for each in range(repeated))
                continue
            reach = len(cells) + _count(cell, "number-columns-spanned")
            text = self._cell(cell, said)
            cells.extend([text, *[text if len(text) <= _LONGEST_REPEATED else ""] * (repeated - 1)])
            self._measure(repeated)
        while cells and cells[-1] == "":
            cells.pop()
        return cells

    def _cell(self, cell: Element, said: list[Block]) -> str:
        said.extend(self._comment(each) for each in cell.iterchildren(f"{OFFICE}annotation"))
        return self._told(cell) or cell.get(f"{OFFICE}value", "") if len(cell) else cell.get(f"{OFFICE}value", "")

    def _formula(self, element: Element) -> str:
        """As its author typed it; empty for an object that is no formula."""
        root = self._object(element)
        if root is None or not str(root.tag).startswith(_MATH):
            return ""
        typed = root.find(f".//{_MATH}annotation")
        return spoken(root if typed is None else typed)

    def _embedded(self, element: Element) -> Iterator[Block]:
        root = self._object(element)
        for each in () if root is None else root.iter(f"{TABLE}table"):
            yield table(self.rows(each, []))

    def _object(self, element: Element) -> Element | None:
        name = posixpath.normpath(f"{element.get(_LINK, '')}/content.xml")
        return parsed(self._archive.read(name)) if name in self._archive else None

    def _is_title(self, element: Element) -> bool:
        name = element.get(f"{_TEXT}style-name", "")
        for _ in range(_DEEPEST_CHAIN):
            if name == "Title" or name not in self._named:
                break
            name = self._named[name].get(f"{STYLE}parent-style-name", "")
        return name == "Title"


def _count(element: Element, name: str) -> int:
    count = element.get(f"{TABLE}{name}", "1")
    return int(count) if count.isdecimal() and len(count) < 9 else 1
