"""Spreadsheets: each visible sheet a section, with its tables, texts and comments."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from rag_core.errors import DocumentError
from rag_core.parsing.archive import open_archive
from rag_core.parsing.blocks import Block, comment, heading, join_blocks, paragraph
from rag_core.parsing.office.cell_formats import FormatCodes, read_cell_codes, read_style_codes
from rag_core.parsing.office.drawings import DRAWING, alternative_text, graphic_blocks, text_blocks
from rag_core.parsing.office.packages import RELATIONSHIP, Part, main_part, with_core_properties
from rag_core.parsing.office.workbooks import Sheet, check_sizes, read_legacy_workbook, read_workbook
from rag_core.parsing.outline import with_outline
from rag_core.parsing.safe_xml import element_text
from rag_core.parsing.tables import find_tables, plain_table
from rag_core.types import Document

VERSION = 4

_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_LEGACY_MEDIA_TYPE = "application/vnd.ms-excel"
_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_SHEET_LEVEL = 2


class SheetsParser:
    def parse(self, uri: str, body: bytes) -> Document:
        archive = open_archive(body)
        workbook = main_part(archive, "xl")
        if workbook.name.endswith(".bin"):
            raise DocumentError("parse", "unsupported: a binary workbook (XLSB); save it as XLSX", status="skipped")
        packed = archive.repack((".xml", ".rels"))
        check_sizes(open_archive(packed))
        elements = workbook.root.iterfind(f"{_SHEET}sheets/{_SHEET}sheet")
        parts = [(sheet.get("name", ""), workbook.find_part(sheet.get(f"{RELATIONSHIP}id", ""))) for sheet in elements]
        sheets = [(name, part) for name, part in parts if part is not None]
        people = [person for part in workbook.find_parts("person") for person in part.root.iter("{*}person")]
        names = {person.get("id", ""): person.get("displayName", "") for person in people}
        attached = {name: [*_drawing_blocks(sheet), *_comment_blocks(sheet, names)] for name, sheet in sheets}
        codes: dict[str, FormatCodes] = {}
        if style_codes := read_style_codes(workbook):
            unpacked = open_archive(packed)
            codes = {name: read_cell_codes(unpacked.read(sheet.name), style_codes) for name, sheet in sheets}
        text = join_blocks(_workbook_blocks(read_workbook(packed, codes), attached))
        return _with_sections(with_core_properties(Document(uri=uri, text=text, media_type=_MEDIA_TYPE), archive))


class LegacySheetsParser:
    def parse(self, uri: str, body: bytes) -> Document:
        """Parses XLS, and XLSX files with the suffix of XLS, which many programs write."""
        if body.startswith(b"PK"):
            return SheetsParser().parse(uri, body)
        if not body:
            raise DocumentError("parse", "empty", status="skipped")
        text = join_blocks(_workbook_blocks(read_legacy_workbook(body), {}))
        return _with_sections(Document(uri=uri, text=text, media_type=_LEGACY_MEDIA_TYPE))


def _with_sections(document: Document) -> Document:
    """Adds a section for each sheet. The first sheet is often called Sheet1, so its heading is not taken as title."""
    return replace(with_outline(document), title=document.title)


def _drawing_blocks(sheet: Part) -> Iterator[Block]:
    for drawing in sheet.find_parts("drawing"):
        for element in drawing.root.iter():
            tag = str(element.tag)
            if tag.endswith("}cNvPr"):
                yield paragraph(alternative_text(element.get("descr", "")))
            elif tag.endswith("}txBody") and not tag.startswith(DRAWING):
                yield from text_blocks(element)
            else:
                yield from graphic_blocks(element, drawing)


def _comment_blocks(sheet: Part, names: Mapping[str, str]) -> Iterator[Block]:
    """Yields the comments on cells, then those in threads. `names` holds the authors of threads, by id."""
    for part in sheet.find_parts("comments"):
        authors = [element_text(author) for author in part.root.iter(f"{_SHEET}author")]
        for element in part.root.iter(f"{_SHEET}comment"):
            index = element.get("authorId", "")
            author = authors[int(index)] if index.isdecimal() and int(index) < len(authors) else ""
            if not author.startswith("tc="):  # a note for old programs that the cell has a thread
                yield _cell_comment(author, element.get("ref", ""), element_text(element.find(f"{_SHEET}text")))
    for part in sheet.find_parts("threadedComment"):
        for element in part.root.iter("{*}threadedComment"):
            author, text = names.get(element.get("personId", ""), ""), element_text(element.find("{*}text"))
            yield _cell_comment(author, element.get("ref", ""), text, element.get("dT", ""))


def _cell_comment(author: str, cell: str, text: str, date: str = "") -> Block:
    return comment(f"{author} on {cell}" if author and cell else author or cell, text, date)


def _workbook_blocks(sheets: Iterable[Sheet], attached: Mapping[str, list[Block]]) -> Iterator[Block]:
    """Yields a heading for each sheet that is not empty, its tables, and what is `attached` to it by its name."""
    for name, rows in sheets:
        blocks = [*map(plain_table, find_tables(rows)), *attached.get(name, [])]
        if any(block.text for block in blocks):
            yield heading(_SHEET_LEVEL, name)
            yield from blocks
