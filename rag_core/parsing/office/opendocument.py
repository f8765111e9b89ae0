"""OpenDocument texts, spreadsheets and presentations: ODT, ODS, ODP."""

from collections.abc import Iterator
from dataclasses import replace

from rag_core.errors import DocumentError
from rag_core.parsing.archive import Archive, open_archive
from rag_core.parsing.blocks import Block, clean_text, heading, join_blocks
from rag_core.parsing.office.opendocument_styles import SCHEMA, STYLE
from rag_core.parsing.office.opendocument_text import DRAW, OFFICE, TABLE, ContentReader
from rag_core.parsing.office.paragraph_text import distinct_furniture
from rag_core.parsing.outline import with_outline
from rag_core.parsing.pages import with_slides
from rag_core.parsing.safe_xml import Element, child_elements, element_text, parse_xml
from rag_core.parsing.tables import find_tables, plain_table
from rag_core.types import Document, Value

VERSION = 2

_MEDIA_TYPE = "application/vnd.oasis.opendocument"
_META = f"{{{SCHEMA}:meta:1.0}}"
_PRESENTATION = f"{{{SCHEMA}:presentation:1.0}}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_MANIFEST = "META-INF/manifest.xml"
_ENCRYPTION = b":encryption-data"
_SHEET_LEVEL = 2
_PAGE_FURNITURE = {f"{STYLE}{name}" for name in ("header", "footer", "header-first", "footer-first")}
_SLIDE_FURNITURE = ("header", "footer", "date-time", "page-number", "page")


class OpenDocumentParser:
    def parse(self, uri: str, body: bytes) -> Document:
        archive = open_archive(body)
        if _MANIFEST in archive and _ENCRYPTION in archive.read(_MANIFEST):
            raise DocumentError("parse", "password protected")
        try:
            return _with_content(_with_metadata(Document(uri=uri, text=""), archive), archive)
        except RecursionError as error:
            raise DocumentError("parse", "elements nested too deep") from error


def _with_content(document: Document, archive: Archive) -> Document:
    """Adds the text. Raises DocumentError if the archive holds another kind of document, such as a database."""
    reader = ContentReader(archive)
    for content in reader.root.iterfind(f"{OFFICE}body/*"):
        kind = str(content.tag).removeprefix(OFFICE)
        document = replace(document, media_type=f"{_MEDIA_TYPE}.{kind}")
        match kind:
            case "text":
                masters = reader.styles_root.iterfind(f"{OFFICE}master-styles/{STYLE}master-page/*")
                furniture = (block for part in masters if part.tag in _PAGE_FURNITURE for block in reader.blocks(part))
                blocks = [*reader.blocks(content), *reader.note_blocks(), *distinct_furniture(furniture)]
                return with_outline(replace(document, text=join_blocks(blocks)))
            case "spreadsheet":
                sheets = content.iterchildren(f"{TABLE}table")
                blocks = [block for sheet in sheets for block in _sheet_blocks(reader, sheet)]
                # The first sheet is often called Sheet1, so its heading must not become the title
                return replace(with_outline(replace(document, text=join_blocks(blocks))), title=document.title)
            case "presentation" | "drawing":
                return with_slides(
                    document, (_read_slide(reader, page) for page in content.iterchildren(f"{DRAW}page"))
                )
    raise DocumentError("parse", "damaged archive: no OpenDocument text, spreadsheet or presentation")


def _sheet_blocks(reader: ContentReader, sheet: Element) -> Iterator[Block]:
    """Yields a heading, the tables, the comments and the drawings; nothing if the sheet is hidden or empty."""
    if reader.is_hidden(sheet):
        return
    comments: list[Block] = []
    blocks = [*map(plain_table, find_tables(reader.rows(sheet, comments))), *comments]
    for shapes in sheet.iterchildren(f"{TABLE}shapes"):
        blocks += reader.shape_blocks(shapes)
    if any(block.text for block in blocks):
        yield heading(_SHEET_LEVEL, sheet.get(f"{TABLE}name", ""))
        yield from blocks


def _read_slide(reader: ContentReader, page: Element) -> tuple[str, list[Block]]:
    """The title of a slide, and its other blocks with the speaker notes."""
    titles = [shape for shape in child_elements(page) if _role(shape) == "title"]
    title = " ".join(block.text for shape in titles for block in reader.shape_blocks(shape))
    blocks: list[Block] = []
    for shape in child_elements(page):
        if shape.tag == f"{_PRESENTATION}notes":
            parts = [part for part in child_elements(shape) if _role(part) not in _SLIDE_FURNITURE]
            notes = [block for part in parts for block in reader.shape_blocks(part) if block.text]
            blocks += [Block("Speaker notes:"), *notes] if notes else []
        elif _role(shape) not in (*_SLIDE_FURNITURE, "title"):
            blocks += reader.shape_blocks(shape)
    return " ".join(title.split()), blocks


def _role(shape: Element) -> str:
    """The role of a shape in the slide's layout, such as title or footer; empty for a free drawing."""
    return shape.get(f"{_PRESENTATION}class", "")


def _with_metadata(document: Document, archive: Archive) -> Document:
    """Adds title, language, author, date, description and tags."""
    if "meta.xml" not in archive:
        return document
    elements = parse_xml(archive.read("meta.xml")).iterfind(f"{OFFICE}meta/*")
    fields = [(str(element.tag), clean_text(element_text(element))) for element in elements]
    values = dict(fields)
    metadata: dict[str, Value] = {
        "author": values.get(f"{_META}initial-creator", "") or values.get(f"{_DC}creator", ""),
        "date": values.get(f"{_DC}date", "") or values.get(f"{_META}creation-date", ""),
        "description": values.get(f"{_DC}description", "") or values.get(f"{_DC}subject", ""),
        "tags": [tag for name, tag in fields if name == f"{_META}keyword" and tag],
    }
    return replace(
        document,
        title=values.get(f"{_DC}title", ""),
        language=values.get(f"{_DC}language", ""),
        metadata={key: value for key, value in metadata.items() if value},
    )
