"""OpenDocument texts, spreadsheets and presentations: ODT, ODS, ODP."""

from collections.abc import Iterator
from dataclasses import replace

from rag_core.errors import DocumentError
from rag_core.parsing.archive import Archive, opened
from rag_core.parsing.blocks import Block, clean, heading, is_page_number, joined
from rag_core.parsing.office.opendocument_text import DRAW, OFFICE, SCHEMA, STYLE, TABLE, Reading
from rag_core.parsing.outline import outlined
from rag_core.parsing.pages import paged
from rag_core.parsing.safe_xml import Element, elements, parsed, spoken
from rag_core.parsing.tables import plain_table, regions
from rag_core.types import Document, Value

VERSION = 2

_MEDIA_TYPE = "application/vnd.oasis.opendocument"
_META = f"{{{SCHEMA}:meta:1.0}}"
_PRESENTATION = f"{{{SCHEMA}:presentation:1.0}}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_ENCRYPTED = b":encryption-data"
_HEADING = 2
_FURNITURE = ("header", "footer", "date-time", "page-number", "page")


class OpenDocumentParser:
    def parse(self, uri: str, body: bytes) -> Document:
        archive = opened(body)
        if "META-INF/manifest.xml" in archive and _ENCRYPTED in archive.read("META-INF/manifest.xml"):
            raise DocumentError("parse", "password protected")
        try:
            return _read(_described(Document(uri=uri, text=""), archive), archive)
        except RecursionError as error:
            raise DocumentError("parse", "elements nested too deep") from error


def _read(document: Document, archive: Archive) -> Document:
    reading = Reading(archive)
    for content in reading.root.iterfind(f"{OFFICE}body/*"):
        kind = str(content.tag).removeprefix(OFFICE)
        known = replace(document, media_type=f"{_MEDIA_TYPE}.{kind}")
        match kind:
            case "text":
                blocks = [*reading.blocks(content), *reading.noted(), *_furniture(reading)]
                return outlined(replace(known, text=joined(blocks)))
            case "spreadsheet":
                sheets = [block for sheet in content.iterchildren(f"{TABLE}table") for block in _sheet(reading, sheet)]
                # not titled by its first sheet, which is `Sheet1` as often as not
                return replace(outlined(replace(known, text=joined(sheets))), title=known.title)
            case "presentation" | "drawing":
                pages = content.iterchildren(f"{DRAW}page")
                return paged(known, ((_title(reading, page), _page(reading, page)) for page in pages))
    raise DocumentError("parse", "damaged archive: no OpenDocument text, spreadsheet or presentation")


def _sheet(reading: Reading, sheet: Element) -> Iterator[Block]:
    if reading.is_hidden(sheet):
        return
    said: list[Block] = []
    blocks = [*map(plain_table, regions(reading.rows(sheet, said))), *said]
    for shapes in sheet.iterchildren(f"{TABLE}shapes"):
        blocks += reading.shape(shapes)
    if any(block.text for block in blocks):
        yield heading(_HEADING, sheet.get(f"{TABLE}name", ""))
        yield from blocks


def _title(reading: Reading, page: Element) -> str:
    titles = [shape for shape in elements(page) if shape.get(f"{_PRESENTATION}class") == "title"]
    return " ".join(" ".join(block.text for shape in titles for block in reading.shape(shape)).split())


def _page(reading: Reading, page: Element) -> Iterator[Block]:
    for shape in elements(page):
        if shape.tag == f"{_PRESENTATION}notes":
            yield from _notes(reading, shape)
        elif shape.get(f"{_PRESENTATION}class") not in (*_FURNITURE, "title"):
            yield from reading.shape(shape)


def _notes(reading: Reading, notes: Element) -> Iterator[Block]:
    shapes = [shape for shape in elements(notes) if shape.get(f"{_PRESENTATION}class") not in _FURNITURE]
    blocks = [block for shape in shapes for block in reading.shape(shape) if block.text]
    if blocks:
        yield Block("Speaker notes:")
        yield from blocks


def _furniture(reading: Reading) -> Iterator[Block]:
    """What stands at the head and the foot of the pages, each once, if it is more than a number."""
    told = set[str]()
    for element in reading.styles.iterfind(f"{OFFICE}master-styles/{STYLE}master-page/*"):
        if element.tag in (f"{STYLE}header", f"{STYLE}footer", f"{STYLE}header-first", f"{STYLE}footer-first"):
            for block in reading.blocks(element):
                if block.text not in told and not is_page_number(block.text):
                    told.add(block.text)
                    yield block


def _described(document: Document, archive: Archive) -> Document:
    if "meta.xml" not in archive:
        return document
    fields = parsed(archive.read("meta.xml")).iterfind(f"{OFFICE}meta/*")
    said = [(str(each.tag), clean(spoken(each))) for each in fields]
    known = dict(said)
    metadata: dict[str, Value] = {
        "author": known.get(f"{_META}initial-creator", "") or known.get(f"{_DC}creator", ""),
        "date": known.get(f"{_DC}date", "") or known.get(f"{_META}creation-date", ""),
        "description": known.get(f"{_DC}description", "") or known.get(f"{_DC}subject", ""),
        "tags": [tag for key, tag in said if key == f"{_META}keyword" and tag],
    }
    return replace(
        document,
        title=known.get(f"{_DC}title", ""),
        language=known.get(f"{_DC}language", ""),
        metadata={key: value for key, value in metadata.items() if value},
    )
