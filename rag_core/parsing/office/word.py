"""Word documents, read from their XML: python-docx skips text boxes, notes, comments, content controls and equations.

The text is what a reader sees: no deleted or hidden text, no table of contents, each header and footer once.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from rag_core.errors import DocumentError
from rag_core.parsing.archive import open_archive
from rag_core.parsing.blocks import Block, comment, heading, join_blocks, list_item, paragraph
from rag_core.parsing.office.drawings import alternative_text, graphic_blocks
from rag_core.parsing.office.equations import MATH, equation_text
from rag_core.parsing.office.numbering import VALUE, WORD, Numbering, child_value, read_numbering
from rag_core.parsing.office.packages import COMPATIBILITY, Part, first_choice, main_part, with_core_properties
from rag_core.parsing.office.paragraph_text import ParagraphText, distinct_furniture
from rag_core.parsing.office.symbols import symbol_character
from rag_core.parsing.office.word_styles import Styles
from rag_core.parsing.outline import with_outline
from rag_core.parsing.safe_xml import Element, child_elements
from rag_core.parsing.tables import Cell, CoveredBy, join_cells, table
from rag_core.types import Document

VERSION = 3

_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_PARAGRAPH, _TABLE, _CONTENT_CONTROL, _TEXT_BOX = (f"{WORD}{name}" for name in ("p", "tbl", "sdt", "txbxContent"))
_ALTERNATES = f"{COMPATIBILITY}AlternateContent"
_WRAPPERS = {f"{WORD}{name}" for name in ("customXml", "ins", "moveTo", "smartTag", "sdtContent")}
_SPANS = _WRAPPERS | {f"{WORD}{name}" for name in ("hyperlink", "fldSimple", "dir", "bdo", "r", "ruby", "rubyBase")}
_DRAWINGS = {f"{WORD}{name}" for name in ("drawing", "pict", "object")}
_CHARACTERS = {"tab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_NOTE_REFERENCES = {"footnoteReference": "footnote", "endnoteReference": "endnote"}
_EXTENSION = "{http://schemas.microsoft.com/office/word/2010/wordml}"
_SYMBOL_CODE = re.compile("[0-9A-Fa-f]{1,5}")
_CONTENTS_STYLE = re.compile(r"toc ?\d|table of figures")
_CHECKBOXES = ("[ ]", "[x]")
_MAX_SPAN = 63
_OFF = ("0", "false", "off", "none")


class WordParser:
    def parse(self, uri: str, body: bytes) -> Document:
        archive = open_archive(body)
        reader = _WordReader(main_part(archive, "word"))
        try:
            text = join_blocks(reader.blocks())
        except RecursionError as error:
            raise DocumentError("parse", "elements nested too deep") from error
        return with_outline(with_core_properties(Document(uri=uri, text=text, media_type=_MEDIA_TYPE), archive))


class _WordReader:
    """Reads one document in its order, and counts its list items and notes."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._numbering = next((read_numbering(related.root) for related in part.find_parts("numbering")), Numbering())
        self._styles = Styles(_elements_by_id(part, "styles", "style", "styleId"), self._numbering.style_levels)
        self._notes: dict[tuple[str, str], int] = {}

    def blocks(self) -> Iterator[Block]:
        """Yields the body, then the notes, then the headers and footers."""
        for body in self._part.root.iterchildren(f"{WORD}body"):
            yield from self._content_blocks(body)
        notes = {kind: _elements_by_id(self._part, f"{kind}s", kind, "id") for kind in _NOTE_REFERENCES.values()}
        number = 0
        while number < len(self._notes):  # the text of a note can add another note
            kind, id = list(self._notes)[number]
            number += 1
            if id in notes[kind]:
                yield paragraph(f"[^{number}]: {self._read_line(notes[kind][id])}")
        furniture = (*self._part.find_parts("header"), *self._part.find_parts("footer"))
        yield from distinct_furniture(block for part in furniture for block in self._content_blocks(part.root))

    def _content_blocks(self, container: Element) -> Iterator[Block]:
        for element in _paragraphs_and_tables(container):
            if element.tag != _TABLE:
                yield from self._paragraph_blocks(element)
                continue
            rows = list(_rows_or_cells(element, "tr"))
            cells = [cell for row in rows for cell in _rows_or_cells(row, "tc")]
            if len(cells) == 1:  # a frame around text
                yield from self._content_blocks(cells[0])
            else:
                yield table(map(self._read_row, rows))

    def _paragraph_blocks(self, element: Element) -> Iterator[Block]:
        layout = self._styles.paragraph_layout(element)
        if _CONTENTS_STYLE.fullmatch(layout.style):
            return
        line = ParagraphText()
        self._read_into(line, element)
        text = line.text
        if text.strip():
            marker = self._numbering.next_marker(layout.list_id, layout.list_level)
            if not marker and text.startswith(_CHECKBOXES):
                marker = "-"
            if layout.heading_level:
                yield heading(layout.heading_level, text if marker == "-" else f"{marker} {text}")
            else:
                yield list_item(text, marker, layout.list_level) if marker else paragraph(text)
        yield from line.following

    def _read_row(self, row: Element) -> list[Cell]:
        cells: list[Cell] = [""] * _read_count(row.find(f"{WORD}trPr/{WORD}gridBefore"), 0)
        for cell in _rows_or_cells(row, "tc"):
            merge = cell.find(f"{WORD}tcPr/{WORD}vMerge")
            is_continued = merge is not None and merge.get(VALUE) != "restart"
            width = _read_count(cell.find(f"{WORD}tcPr/{WORD}gridSpan"), 1)
            cells.append(CoveredBy.ABOVE if is_continued else self._read_line(cell))
            cells.extend([CoveredBy.ABOVE if is_continued else CoveredBy.LEFT] * (width - 1))
        return cells

    def _read_line(self, container: Element) -> str:
        """The text of a table cell, note or comment on one line; tables in it cell by cell."""
        texts: list[str] = []
        for element in _paragraphs_and_tables(container):
            if element.tag == _TABLE:
                rows = _rows_or_cells(element, "tr")
                texts.append(join_cells([self._read_line(cell) for cell in _rows_or_cells(row, "tc")] for row in rows))
            else:
                texts += [block.text for block in self._paragraph_blocks(element)]
        return " ".join(filter(None, texts))

    def _read_into(self, line: ParagraphText, parent: Element) -> None:
        for child in child_elements(parent):
            tag = str(child.tag)
            if tag in _SPANS:
                properties, start = child.find(f"{WORD}rPr"), len(line.pieces)
                if not _is_on(properties, "vanish"):
                    self._read_into(line, child)
                if child_value(properties, "vertAlign") == "superscript":
                    line.mark_exponent(start)
            elif tag == _CONTENT_CONTROL:
                line.pieces.append(_checkbox(child))
                for content in _control_content(child):
                    self._read_into(line, content)
            elif tag == _ALTERNATES:
                for choice in first_choice(child):
                    self._read_into(line, choice)
            elif tag in _DRAWINGS:
                self._read_drawing(line, child)
            else:
                self._read_leaf(line, child)

    def _read_drawing(self, line: ParagraphText, drawing: Element) -> None:
        """Reads alternative texts into the line; text boxes, charts and diagrams follow it."""
        pending = [drawing]
        while pending:
            element = pending.pop()
            if element.tag == _TEXT_BOX:
                line.following.extend(self._content_blocks(element))
                continue
            if str(element.tag).endswith("}docPr") and (text := alternative_text(element.get("descr", ""))):
                line.pieces.append(f" {text} ")
            line.following.extend(graphic_blocks(element, self._part))
            children = first_choice(element) if element.tag == _ALTERNATES else child_elements(element)
            pending.extend(reversed(list(children)))

    def _read_leaf(self, line: ParagraphText, element: Element) -> None:
        name = str(element.tag).removeprefix(WORD)
        if name == "t":
            line.pieces.append(element.text or "")
        elif name in _CHARACTERS:
            line.pieces.append(_CHARACTERS[name])
        elif name == "sym":
            code = element.get(f"{WORD}char", "")
            if _SYMBOL_CODE.fullmatch(code):
                line.pieces.append(symbol_character(element.get(f"{WORD}font", ""), int(code, 16)))
        elif name in _NOTE_REFERENCES:
            note = (_NOTE_REFERENCES[name], element.get(f"{WORD}id", ""))
            line.pieces.append(f"[^{self._notes.setdefault(note, len(self._notes) + 1)}]")
        elif name == "commentReference" and (id := element.get(f"{WORD}id", "")) in self._comments:
            author = self._comments[id].get(f"{WORD}author", "")
            line.following.append(comment(author, self._read_line(self._comments[id])))
        elif name.startswith(MATH):
            line.pieces.append(f" {equation_text(element)} ")

    @cached_property
    def _comments(self) -> Mapping[str, Element]:
        return _elements_by_id(self._part, "comments", "comment", "id")


def _elements_by_id(part: Part, kind: str, name: str, key: str) -> dict[str, Element]:
    """The elements called `name` in the related parts of a kind, by their attribute `key`."""
    elements = (child for related in part.find_parts(kind) for child in related.root.iterchildren(f"{WORD}{name}"))
    return {element.get(f"{WORD}{key}", ""): element for element in elements}


def _paragraphs_and_tables(container: Element) -> Iterator[Element]:
    """Yields the paragraphs and tables in a container, including those in content controls and other wrappers."""
    for child in child_elements(container):
        if child.tag in (_PARAGRAPH, _TABLE):
            yield child
        elif child.tag == _CONTENT_CONTROL:
            for content in _control_content(child):
                yield from _paragraphs_and_tables(content)
        elif child.tag == _ALTERNATES:
            for choice in first_choice(child):
                yield from _paragraphs_and_tables(choice)
        elif child.tag in _WRAPPERS:
            yield from _paragraphs_and_tables(child)


def _control_content(control: Element) -> Iterator[Element]:
    """Yields a content control's content, unless it is a table of contents, a checkbox or a placeholder."""
    properties = control.find(f"{WORD}sdtPr")
    gallery = None if properties is None else properties.find(f"{WORD}docPartObj/{WORD}docPartGallery")
    is_contents = gallery is not None and gallery.get(VALUE) == "Table of Contents"
    if not (is_contents or _checkbox(control) or _is_on(properties, "showingPlcHdr")):
        yield from control.iterchildren(f"{WORD}sdtContent")


def _checkbox(control: Element) -> str:
    """`[ ]` or `[x]`; empty if the content control is not a checkbox."""
    box = control.find(f"{WORD}sdtPr/{_EXTENSION}checkbox")
    if box is None:
        return ""
    checked = box.find(f"{_EXTENSION}checked")
    return _CHECKBOXES[checked is not None and checked.get(f"{_EXTENSION}val") not in _OFF]


def _rows_or_cells(parent: Element, name: str) -> Iterator[Element]:
    """Yields rows of a table or cells of a row, including those in content controls and in tracked insertions."""
    for child in child_elements(parent):
        if child.tag == f"{WORD}{name}":
            yield child
        elif child.tag == _CONTENT_CONTROL or child.tag in _WRAPPERS:
            yield from _rows_or_cells(child, name)


def _is_on(properties: Element | None, name: str) -> bool:
    switch = None if properties is None else properties.find(f"{WORD}{name}")
    return switch is not None and switch.get(VALUE) not in _OFF


def _read_count(element: Element | None, default: int) -> int:
    count = "" if element is None else element.get(VALUE, "")
    return min(int(count), _MAX_SPAN) if count.isdecimal() else default
