"""Word documents, read from their XML: python-docx passes over text boxes, notes, comments, content controls and
equations. What a reader sees is kept: no deleted or hidden text, no table of contents, each header and footer once.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rag_core.errors import DocumentError
from rag_core.parsing.archive import opened
from rag_core.parsing.blocks import Block, comment, heading, is_page_number, joined, listed, paragraph
from rag_core.parsing.office.drawings import alternative, graphic_blocks
from rag_core.parsing.office.equations import MATH, equation
from rag_core.parsing.office.numbering import VALUE, WORD, Numbering, numbering
from rag_core.parsing.office.packages import COMPATIBILITY, Part, chosen, described, main_part
from rag_core.parsing.office.symbols import symbol
from rag_core.parsing.office.word_styles import Layout, Styles
from rag_core.parsing.outline import outlined
from rag_core.parsing.safe_xml import Element, elements
from rag_core.parsing.tables import Cell, Covered, flat, table
from rag_core.types import Document

VERSION = 3

_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_ALTERNATES = f"{COMPATIBILITY}AlternateContent"
_SPANS = {f"{WORD}{name}" for name in ("customXml", "ins", "moveTo", "smartTag", "sdtContent")}
_INLINE = _SPANS | {f"{WORD}{name}" for name in ("hyperlink", "fldSimple", "dir", "bdo", "r", "ruby", "rubyBase")}
_DRAWINGS = {f"{WORD}{name}" for name in ("drawing", "pict", "object")}
_CHARACTERS = {"tab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_REFERENCES = {"footnoteReference": "footnote", "endnoteReference": "endnote"}
_EXTENSION = "{http://schemas.microsoft.com/office/word/2010/wordml}"
_POWER = re.compile(r"[-\u2212+]?\d+")
_CONTENTS = re.compile(r"toc ?\d|table of figures")
_TICKS = ("[ ]", "[x]")
_WIDEST = 63
_OFF = ("0", "false", "off", "none")


class WordParser:
    def parse(self, uri: str, body: bytes) -> Document:
        archive = opened(body)
        reading = _Reading(main_part(archive, "word"))
        try:
            text = joined(reading.blocks())
        except RecursionError as error:
            raise DocumentError("parse", "elements nested too deep") from error
        return outlined(described(Document(uri=uri, text=text, media_type=_MEDIA_TYPE), archive))


@dataclass(frozen=True, slots=True)
class _Line:
    """A paragraph's text in pieces, and what hangs on it and follows it."""

    pieces: list[str] = field(default_factory=list)
    after: list[Block] = field(default_factory=list)


class _Reading:
    """One document from its beginning to its end: lists and notes are counted on the way."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._numbering = _numbering(part)
        self._styles = Styles(_by_id(part, "styles", "style", "styleId"), self._numbering.styles)
        self._notes: dict[tuple[str, str], int] = {}

    def blocks(self) -> Iterator[Block]:
        for body in self._part.root.iterchildren(f"{WORD}body"):
            yield from self._blocks(body)
        yield from self._noted()
        yield from self._furniture()

    def _blocks(self, container: Element) -> Iterator[Block]:
        for element in _content(container):
            yield from self._table(element) if element.tag == f"{WORD}tbl" else self._paragraph(element)

    def _paragraph(self, element: Element) -> Iterator[Block]:
        layout = self._styles.layout(element)
        if _CONTENTS.fullmatch(layout.style):
            return
        line = _Line()
        self._read(element, line)
        yield self._block(layout, "".join(line.pieces))
        yield from line.after

    def _block(self, layout: Layout, text: str) -> Block:
        if not text.strip():
            return Block("")
        marker = self._numbering.marker(layout.number, layout.depth) or ("-" if text.startswith(_TICKS) else "")
        if layout.level:
            return heading(layout.level, text if marker == "-" else f"{marker} {text}")
        return listed(text, marker, layout.depth) if marker else paragraph(text)

    def _table(self, element: Element) -> Iterator[Block]:
        rows = list(_named(element, "tr"))
        cells = [cell for row in rows for cell in _named(row, "tc")]
        if len(cells) == 1:  # a frame around text
            yield from self._blocks(cells[0])
        else:
            yield table(map(self._row, rows))

    def _row(self, row: Element) -> list[Cell]:
        texts: list[Cell] = [""] * _count(row.find(f"{WORD}trPr/{WORD}gridBefore"), 0)
        for cell in _named(row, "tc"):
            merged = cell.find(f"{WORD}tcPr/{WORD}vMerge")
            continues = merged is not None and merged.get(VALUE) != "restart"
            covered = Covered.ABOVE if continues else Covered.LEFT
            texts.append(Covered.ABOVE if continues else self._cell(cell))
            texts.extend([covered] * (_count(cell.find(f"{WORD}tcPr/{WORD}gridSpan"), 1) - 1))
        return texts

    def _cell(self, cell: Element) -> str:
        return " ".join(text for element in _content(cell) if (text := self._told(element)))

    def _told(self, element: Element) -> str:
        """On one line, a table cell by cell."""
        if element.tag == f"{WORD}tbl":
            return flat([self._cell(cell) for cell in _named(row, "tc")] for row in _named(element, "tr"))
        return " ".join(block.text for block in self._paragraph(element) if block.text)

    def _read(self, parent: Element, line: _Line) -> None:
        for child in elements(parent):
            tag = str(child.tag)
            if tag in _INLINE:
                self._read_span(child, line)
            elif tag == f"{WORD}sdt":
                line.pieces.append(_tick(child))
                for content in _filled_in(child):
                    self._read(content, line)
            elif tag == _ALTERNATES:
                for choice in chosen(child):
                    self._read(choice, line)
            elif tag in _DRAWINGS:
                self._read_drawing(child, line)
            else:
                self._read_leaf(child, line)

    def _read_span(self, element: Element, line: _Line) -> None:
        properties = element.find(f"{WORD}rPr")
        if _is_on(properties, "vanish"):
            return
        start = len(line.pieces)
        self._read(element, line)
        raised = None if properties is None else properties.find(f"{WORD}vertAlign")
        if raised is not None and raised.get(VALUE) == "superscript" and _POWER.fullmatch("".join(line.pieces[start:])):
            line.pieces.insert(start, "^")

    def _read_drawing(self, drawing: Element, line: _Line) -> None:
        for element in _drawn(drawing):
            said = alternative(element.get("descr", "")) if str(element.tag).endswith("}docPr") else ""
            line.pieces.append(f" {said} " if said else "")
            if element.tag == f"{WORD}txbxContent":
                line.after.extend(self._blocks(element))
            else:
                line.after.extend(graphic_blocks(element, self._part))

    def _read_leaf(self, element: Element, line: _Line) -> None:
        name = str(element.tag).removeprefix(WORD)
        if name == "t":
            line.pieces.append(element.text or "")
        elif name in _CHARACTERS:
            line.pieces.append(_CHARACTERS[name])
        elif name == "sym":
            line.pieces.append(_symbol(element))
        elif name in _REFERENCES:
            note = (_REFERENCES[name], element.get(f"{WORD}id", ""))
            line.pieces.append(f"[^{self._notes.setdefault(note, len(self._notes) + 1)}]")
        elif name == "commentReference":
            line.after.extend(self._comment(element.get(f"{WORD}id", "")))
        elif name.startswith(MATH):
            line.pieces.append(f" {equation(element)} ")

    def _comment(self, id: str) -> Iterator[Block]:
        found = self._comments.get(id)
        if found is not None:
            yield comment(found.get(f"{WORD}author", ""), self._cell(found))

    def _noted(self) -> Iterator[Block]:
        texts = {kind: _by_id(self._part, f"{kind}s", kind, "id") for kind in _REFERENCES.values()}
        told = 0
        while told < len(self._notes):  # a note may refer to another one
            (kind, id), number = list(self._notes.items())[told]
            told += 1
            if id in texts[kind]:
                yield paragraph(f"[^{number}]: {self._cell(texts[kind][id])}")

    def _furniture(self) -> Iterator[Block]:
        """Headers and footers that say more than a page's number, each once."""
        told = set[str]()
        for part in (*self._part.related("header"), *self._part.related("footer")):
            for block in self._blocks(part.root):
                if block.text not in told and not is_page_number(block.text):
                    told.add(block.text)
                    yield block

    @cached_property
    def _comments(self) -> Mapping[str, Element]:
        return _by_id(self._part, "comments", "comment", "id")


def _numbering(part: Part) -> Numbering:
    return next((numbering(each.root) for each in part.related("numbering")), Numbering())


def _by_id(part: Part, kind: str, name: str, key: str) -> dict[str, Element]:
    """The elements of this name in the parts of this kind."""
    found = (each for related in part.related(kind) for each in related.root.iterchildren(f"{WORD}{name}"))
    return {each.get(f"{WORD}{key}", ""): each for each in found}


def _content(container: Element) -> Iterator[Element]:
    """Its paragraphs and tables, whatever they are wrapped in."""
    for child in elements(container):
        if child.tag in (f"{WORD}p", f"{WORD}tbl"):
            yield child
        elif child.tag == f"{WORD}sdt":
            for content in _filled_in(child):
                yield from _content(content)
        elif child.tag == _ALTERNATES:
            for choice in chosen(child):
                yield from _content(choice)
        elif child.tag in _SPANS:
            yield from _content(child)


def _filled_in(control: Element) -> Iterator[Element]:
    """A content control's content, unless it is a table of contents, a tick, or what waits for an entry."""
    properties = control.find(f"{WORD}sdtPr")
    gallery = None if properties is None else properties.find(f"{WORD}docPartObj/{WORD}docPartGallery")
    is_contents = gallery is not None and gallery.get(VALUE) == "Table of Contents"
    if not (is_contents or _tick(control) or _is_on(properties, "showingPlcHdr")):
        yield from control.iterchildren(f"{WORD}sdtContent")


def _tick(control: Element) -> str:
    box = control.find(f"{WORD}sdtPr/{_EXTENSION}checkbox")
    if box is None:
        return ""
    checked = box.find(f"{_EXTENSION}checked")
    return _TICKS[checked is not None and checked.get(f"{_EXTENSION}val") not in _OFF]


def _named(parent: Element, name: str) -> Iterator[Element]:
    """Rows of a table and cells of a row, also those in a content control or inserted by a reviewer."""
    for child in elements(parent):
        if child.tag == f"{WORD}{name}":
            yield child
        elif child.tag == f"{WORD}sdt" or child.tag in _SPANS:
            yield from _named(child, name)


def _drawn(drawing: Element) -> Iterator[Element]:
    """What a drawing is made of, each text box whole, of alternatives the first."""
    waiting = [drawing]
    while waiting:
        element = waiting.pop()
        yield element
        if element.tag == _ALTERNATES:
            waiting.extend(chosen(element))
        elif element.tag != f"{WORD}txbxContent":
            waiting.extend(reversed(list(elements(element))))


def _is_on(properties: Element | None, name: str) -> bool:
    switch = None if properties is None else properties.find(f"{WORD}{name}")
    return switch is not None and switch.get(VALUE) not in _OFF


def _count(element: Element | None, otherwise: int) -> int:
    count = "" if element is None else element.get(VALUE, "")
    return min(int(count), _WIDEST) if count.isdecimal() else otherwise


def _symbol(element: Element) -> str:
    code = element.get(f"{WORD}char", "")
    return symbol(element.get(f"{WORD}font", ""), int(code, 16)) if re.fullmatch("[0-9A-Fa-f]{1,5}", code) else ""
