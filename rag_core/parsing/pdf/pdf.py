"""PDF: its text layer as running text, with headings found by their letters or by the document's bookmarks."""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from threading import Lock

import pypdfium2
import pypdfium2.raw as pdfium

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import clean_text, heading, paragraph
from rag_core.parsing.flags import with_flags
from rag_core.parsing.pdf.drawing import draw_page
from rag_core.parsing.pdf.headings import with_bookmark_levels
from rag_core.parsing.pdf.layout import build_paragraphs
from rag_core.parsing.pdf.lines import Paragraph
from rag_core.parsing.pdf.tesseract import OCR, Tesseract
from rag_core.parsing.pdf.text_page import TextPage, read_page
from rag_core.parsing.sections import Heading, sections_from_headings
from rag_core.parsing.tables import format_rows
from rag_core.text.titles import has_words
from rag_core.types import Document, Value

VERSION = 3

MAX_PAGES = 5000

# PDFium is not thread-safe, not even with several documents
_PDFIUM_LOCK = Lock()
_TEXT_LINE = re.compile(r"[^\n]*\n?")
_DATE = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?")
_NO_TEXT = (
    "no text layer: a scanned PDF; set parsing.ocr to {type: tesseract}, "
    "or run OCR over it first, e.g. ocrmypdf, and ingest the result"
)
_NO_READABLE_TEXT = "no text layer, and OCR found no text"


class PdfParser:
    def __init__(self, ocr: Tesseract | None = None) -> None:
        self._ocr = ocr

    def parse(self, uri: str, body: bytes) -> Document:
        """Parses the text layer, and reads pages without one by OCR. Raises DocumentError if there is no text.

        The metadata `pages_without_text` counts the pages that show something but have no text besides headers.
        """
        with _PDFIUM_LOCK, closing(_open_pdf(body)) as pdf:
            if len(pdf) > MAX_PAGES:
                raise DocumentError("parse", f"too large: {len(pdf)} pages, limit {MAX_PAGES}")
            printed = [read_page(pdf, number) for number in range(len(pdf))]
            pages = self._read_scans(pdf, printed)
            properties = pdf.get_metadata_dict()
            bookmarks = [(mark.get_title(), mark.level + 1) for mark in pdf.get_toc(max_depth=6)]
        paragraphs = with_bookmark_levels(build_paragraphs([page.lines for page in pages]), bookmarks)
        if not paragraphs:
            raise DocumentError("parse", _NO_READABLE_TEXT if self._ocr else _NO_TEXT)
        text = _TextBuilder()
        for current in paragraphs:
            text.add(current)
        read_pages = {line.page for current in paragraphs for line in current.lines}
        unread = sum(page.has_content and number not in read_pages for number, page in enumerate(pages))
        document = Document(
            uri=uri,
            text=f"{text}\n",
            media_type="application/pdf",
            metadata=_read_metadata(properties) | ({"pages_without_text": unread} if unread else {}),
            sections=sections_from_headings(text.headings),
            pages=text.pages(len(pages)),
        )
        titled = replace(document, title=_choose_title(properties.get("Title", ""), document))
        return with_flags(titled, [OCR] if pages != printed else ())

    def _read_scans(self, pdf: pypdfium2.PdfDocument, pages: Sequence[TextPage]) -> Sequence[TextPage]:
        """The pages, with the lines that OCR finds on those that show something but have no text layer."""
        scans = [number for number, page in enumerate(pages) if page.has_content and not page.lines]
        if self._ocr is None or not scans:
            return pages
        lines = self._ocr.read_pages(scans, partial(draw_page, pdf))
        return [page._replace(lines=lines.get(number, page.lines)) for number, page in enumerate(pages)]


def _open_pdf(body: bytes) -> pypdfium2.PdfDocument:
    if not body:
        raise DocumentError("parse", "empty", status="skipped")
    pdfium.FPDF_LoadMemDocument64(b"", 0, None)  # a file without pages gives the last error, which was another file's
    try:
        pdf = pypdfium2.PdfDocument(body)
        if pdf.get_formtype() == pdfium.FORMTYPE_ACRO_FORM:
            pdf.init_forms()
        return pdf
    except pypdfium2.PdfiumError as error:
        is_protected = error.err_code == pdfium.FPDF_ERR_PASSWORD
        raise DocumentError("parse", "password protected" if is_protected else f"damaged PDF: {error}") from error


class _TextBuilder:
    """The text written so far, and the offsets at which its pages and headings begin."""

    def __init__(self) -> None:
        self.headings: list[Heading] = []
        self._parts: list[str] = []
        self._length = 0
        self._page_starts: dict[int, int] = {}
        self._above: Paragraph | None = None

    def __str__(self) -> str:
        return "".join(self._parts)

    def add(self, current: Paragraph) -> None:
        if current.is_contents:
            return
        if self._above is not None:
            self._append("\n" if self._above.is_list_item and current.is_list_item else "\n\n")
        self._above, first_page = current, current.lines[0].page
        self._page_starts.setdefault(first_page, self._length)
        if current.level:
            title = " ".join(current.text.split())
            self.headings.append(Heading(current.level, title, self._length))
            self._append(heading(current.level, title).text)
        elif current.table:
            text = format_rows(current.table[0], current.table[1:])
            line_ends = [self._length + line.end() for line in _TEXT_LINE.finditer(text)]
            for page, row in enumerate(current.page_starts, start=first_page + 1):
                self._page_starts.setdefault(page, line_ends[row])  # the rule below the header is a line more
            self._append(text)
        else:
            for separator, line in zip(current.separators, current.lines, strict=True):
                self._append(separator)
                self._page_starts.setdefault(line.page, self._length)
                self._append(line.text if separator == " " else paragraph(line.text).text)

    def pages(self, count: int) -> tuple[int, ...]:
        """The offset at which each page begins. A page without text begins where the next one does."""
        starts = [self._length] * (count + 1)
        for page in reversed(range(count)):
            starts[page] = self._page_starts.get(page, starts[page + 1])
        return tuple(starts[:count])

    def _append(self, part: str) -> None:
        self._parts.append(part)
        self._length += len(part)


def _choose_title(stored: str, document: Document) -> str:
    """The title that the PDF stores if it has words; else the first heading, if possible of level 1."""
    title = clean_text(" ".join(stored.split()))
    if has_words(title):
        return title
    tops = [section for section in document.sections if document.text.startswith("# ", section.start)]
    return next((section.path[-1] for section in (*tops, *document.sections)), "")


def _read_metadata(properties: Mapping[str, str]) -> dict[str, Value]:
    """Author, keywords, description, and the day of a creation date such as `D:20240102030405+01'00'`."""
    date = _DATE.match(properties.get("CreationDate", ""))
    metadata: dict[str, Value] = {
        "author": clean_text(properties.get("Author", "")),
        "keywords": clean_text(properties.get("Keywords", "")).replace(";", ","),
        "description": clean_text(properties.get("Subject", "")),
        "date": "-".join(filter(None, date.groups())) if date else "",
    }
    return {key: value for key, value in metadata.items() if value}
