"""PDF: its text layer as running text, with headings told by their letters or by the document's bookmarks."""

import ctypes
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot
from threading import Lock
from typing import NamedTuple

import pypdfium2
import pypdfium2.raw as pdfium

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import clean, heading, paragraph
from rag_core.parsing.pdf.grid import Cell
from rag_core.parsing.pdf.layout import GAP, Line, Paragraph, paragraphs
from rag_core.parsing.sections import Heading, nested
from rag_core.parsing.tables import table
from rag_core.types import Document, Metadata

VERSION = 2

MOST_PAGES = 5000

# PDFium is not thread-safe, not even with several documents
_PDFIUM = Lock()
_MARGIN = 0.1  # of a page's height, at its top and at its bottom
_WRITTEN_ON = {pdfium.FPDF_ANNOT_WIDGET, pdfium.FPDF_ANNOT_FREETEXT, pdfium.FPDF_ANNOT_STAMP}
_BOLD = 600
_LONGEST_FONT_NAME = 128
_LEADERS = re.compile(r"(?:[ \t]?[._\u2026]){5,}")
_WORD = re.compile(r"\S+")
_LINE = re.compile(r"[^\n]*\n?")
_UNSEEN = re.compile(r"[\u00ad\u200b\ufeff]")
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
_NO_TITLE = re.compile(
    r"untitled.*|microsoft \w+ - .*|.*\.\w{2,5}|(?:document|presentation|slide)\s?\d*", re.IGNORECASE
)
_DATE = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?")
_NO_TEXT = "no text layer: a scanned PDF; run OCR over it first, e.g. ocrmypdf, and ingest the result"


class PdfParser:
    def parse(self, uri: str, body: bytes) -> Document:
        """`pages_without_text` are those of its pages that show something, but have no text beside headers."""
        with _PDFIUM, closing(_opened(body)) as pdf:
            if len(pdf) > MOST_PAGES:
                raise DocumentError("parse", f"too large: {len(pdf)} pages, limit {MOST_PAGES}")
            pages = [_page(pdf, number) for number in range(len(pdf))]
            told, bookmarks = pdf.get_metadata_dict(), _bookmarks(pdf)
        found = _outlined(paragraphs([page.lines for page in pages]), bookmarks)
        if not found:
            raise DocumentError("parse", _NO_TEXT)
        document = _written(Document(uri=uri, text="", media_type="application/pdf"), found, len(pages))
        metadata = {**_metadata(told), **_without_text(pages, found)}
        return replace(document, title=_title(told.get("Title", ""), document), metadata=metadata)


class _Page(NamedTuple):
    lines: list[Line]
    shows: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A page's box, and how many degrees clockwise it is turned to be looked at."""

    left: float
    bottom: float
    right: float
    top: float
    turned: int

    @property
    def height(self) -> float:
        return self.right - self.left if self.turned in (90, 270) else self.top - self.bottom

    def seen(self, x: float, y: float) -> tuple[float, float]:
        """From the lower left corner of what is looked at."""
        match self.turned:
            case 90:
                return y - self.bottom, self.right - x
            case 180:
                return self.right - x, self.top - y
            case 270:
                return self.top - y, x - self.left
            case _:
                return x - self.left, y - self.bottom

    def extent(self, box: pdfium.FS_RECTF) -> tuple[float, float]:
        """From where to where it reaches along a line."""
        if not self.turned:
            return box.left - self.left, box.right - self.left
        first, last = self.seen(box.left, box.bottom)[0], self.seen(box.right, box.top)[0]
        return min(first, last), max(first, last)


def _opened(body: bytes) -> pypdfium2.PdfDocument:
    if not body:
        raise DocumentError("parse", "empty", status="skipped")
    try:
        pdf = pypdfium2.PdfDocument(body)
        if pdf.get_formtype() == pdfium.FORMTYPE_ACRO_FORM:
            pdf.init_forms()
        return pdf
    except pypdfium2.PdfiumError as error:
        reason = "password protected" if error.err_code == pdfium.FPDF_ERR_PASSWORD else f"damaged PDF: {error}"
        raise DocumentError("parse", reason) from error


def _page(pdf: pypdfium2.PdfDocument, number: int) -> _Page:
    try:
        with closing(_flat(pdf, number)) as page, closing(page.get_textpage()) as text:
            left, bottom, right, top = page.get_bbox()
            view = _View(left=left, bottom=bottom, right=right, top=top, turned=page.get_rotation())
            return _Page(list(_measured(text, number, view)), pdfium.FPDFPage_CountObjects(page) > 0)
    except pypdfium2.PdfiumError as error:
        raise DocumentError("parse", f"damaged PDF: page {number + 1}: {error}") from error


def _flat(pdf: pypdfium2.PdfDocument, number: int) -> pypdfium2.PdfPage:
    """What has been filled in or written on it is a part of it: else PDFium does not read that."""
    page = pdf[number]
    subtypes = {_subtype(page, place) for place in range(pdfium.FPDFPage_GetAnnotCount(page))}
    if not subtypes & _WRITTEN_ON:
        return page
    pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY)
    page.close()
    return pdf[number]


def _subtype(page: pypdfium2.PdfPage, place: int) -> int:
    annotation = pdfium.FPDFPage_GetAnnot(page, place)
    subtype = int(pdfium.FPDFAnnot_GetSubtype(annotation))
    pdfium.FPDFPage_CloseAnnot(annotation)
    return subtype


def _measured(page: pypdfium2.PdfTextPage, number: int, view: _View) -> Iterator[Line]:
    """PDFium's own lines, in its order. Only the ends of its words are measured."""
    start = 0
    for raw in page.get_text_range().split("\r\n"):
        text = _readable(raw)
        if text:
            places = [start + place for place in (_first(raw), _middle(raw), _last(raw))]
            line = _placed(page, text, number, view, places)
            yield replace(line, cells=_cells(page, raw, start, line, view))
        start += len(raw) + 2


def _readable(raw: str) -> str:
    """U+FFFE, where PDFium joined a word cut at the line's end, stays."""
    cut = raw.replace("\n", " ").translate(_LIGATURES)
    return clean(_LEADERS.sub(" ...", _UNSEEN.sub("", " ".join(cut.split()))))


def _first(raw: str) -> int:
    return len(raw) - len(raw.lstrip())


def _last(raw: str) -> int:
    return len(raw.rstrip()) - 1


def _middle(raw: str) -> int:
    """A letter, not a bullet or a mark in another font."""
    letters = [index for index, letter in enumerate(raw) if letter.isalnum()]
    return letters[len(letters) // 2] if letters else 0


def _placed(page: pypdfium2.PdfTextPage, text: str, number: int, view: _View, places: Sequence[int]) -> Line:
    first, middle, last = (_letter(page, place) for place in places)
    _, baseline = view.seen(*_origin(page, middle))
    left, _ = view.extent(_box(page, first))
    _, right = view.extent(_box(page, last))
    margin = not _MARGIN * view.height < baseline < (1 - _MARGIN) * view.height
    return Line(
        text=text,
        page=number,
        left=left,
        right=right,
        baseline=baseline,
        size=_size(page, middle),
        bold=_is_bold(page, middle),
        margin=margin,
    )


def _cells(page: pypdfium2.PdfTextPage, raw: str, start: int, line: Line, view: _View) -> tuple[Cell, ...]:
    """Its parts, where there are several."""
    words = [word.span() for word in _WORD.finditer(raw)]
    ends = list(_ends(page, words, start, view)) if len(words) > 1 else []
    cuts = [i for i in range(1, len(ends)) if ends[i][0] - ends[i - 1][1] > GAP * line.size]
    if not cuts:
        return ()
    parts = pairwise([0, *cuts, len(words)])
    return tuple(Cell(_readable(raw[words[i][0] : words[j - 1][1]]), ends[i][0], ends[j - 1][1]) for i, j in parts)


def _ends(
    page: pypdfium2.PdfTextPage, words: Sequence[tuple[int, int]], start: int, view: _View
) -> Iterator[tuple[float, float]]:
    """From where to where each word reaches. Called for every word: most of the time of a PDF goes by here."""
    box, measure = pdfium.FS_RECTF(), pdfium.FPDFText_GetLooseCharBox
    shift = _letter(page, start + words[0][0]) - words[0][0]
    for first, end in words:
        measure(page, shift + first, box)
        left, _ = view.extent(box)
        measure(page, shift + end - 1, box)
        _, right = view.extent(box)
        yield left, right


def _letter(page: pypdfium2.PdfTextPage, place: int) -> int:
    """PDFium's number for the letter at this place of its text."""
    return int(pdfium.FPDFText_GetCharIndexFromTextIndex(page, place))


def _origin(page: pypdfium2.PdfTextPage, letter: int) -> tuple[float, float]:
    x, y = ctypes.c_double(), ctypes.c_double()
    pdfium.FPDFText_GetCharOrigin(page, letter, x, y)
    return x.value, y.value


def _box(page: pypdfium2.PdfTextPage, letter: int) -> pdfium.FS_RECTF:
    box = pdfium.FS_RECTF()
    pdfium.FPDFText_GetLooseCharBox(page, letter, box)
    return box


def _size(page: pypdfium2.PdfTextPage, letter: int) -> float:
    """In half points; many writers set a font of size 1 and scale it."""
    matrix = pdfium.FS_MATRIX()
    pdfium.FPDFText_GetMatrix(page, letter, matrix)
    scale = hypot(matrix.c, matrix.d)
    size: float = pdfium.FPDFText_GetFontSize(page, letter)
    return max(round(size * scale * 2) / 2, 1.0)


def _is_bold(page: pypdfium2.PdfTextPage, letter: int) -> bool:
    if pdfium.FPDFText_GetFontWeight(page, letter) >= _BOLD:
        return True
    name, flags = ctypes.create_string_buffer(_LONGEST_FONT_NAME), ctypes.c_int()
    pdfium.FPDFText_GetFontInfo(page, letter, name, _LONGEST_FONT_NAME, flags)
    return b"bold" in name.value.lower()


def _bookmarks(pdf: pypdfium2.PdfDocument) -> dict[str, int]:
    """Their levels, from 1, by their simplified titles."""
    found = [(_simple(mark.get_title()), mark.level + 1) for mark in pdf.get_toc(max_depth=6)]
    return {title: level for title, level in reversed(found) if title}


def _outlined(found: Sequence[Paragraph], bookmarks: dict[str, int]) -> list[Paragraph]:
    """Bookmarks decide what a heading is where at least half of them stand in the text."""
    levels = [bookmarks.get(_simple(each.text), 0) if _is_short(each) else 0 for each in found]
    if len(bookmarks) < 2 or sum(map(bool, levels)) * 2 < len(bookmarks):
        return list(found)
    return [replace(each, level=level) for each, level in zip(found, levels, strict=True)]


def _is_short(each: Paragraph) -> bool:
    return sum(len(line.text) for line in each.lines) <= 300


def _simple(title: str) -> str:
    """Letters alone: bookmarks leave out the numbers of chapters, or the blanks."""
    return "".join(letter for letter in title.casefold() if letter.isalpha())


def _written(document: Document, found: Sequence[Paragraph], pages: int) -> Document:
    text = _Text()
    for above, each in pairwise([None, *found]):
        text.write(above, each)
    return replace(document, text=f"{text}\n", sections=nested(text.headings), pages=text.pages(pages))


class _Text:
    """What has been written, and where pages and headings begin in it."""

    def __init__(self) -> None:
        self.headings: list[Heading] = []
        self._parts: list[str] = []
        self._length = 0
        self._begins: dict[int, int] = {}

    def __str__(self) -> str:
        return "".join(self._parts)

    def write(self, above: Paragraph | None, each: Paragraph | None) -> None:
        if each is None:
            return
        if above is not None:
            self._add("\n" if above.is_listed and each.is_listed else "\n\n")
        self._begins.setdefault(each.lines[0].page, self._length)
        if each.level:
            title = " ".join(each.text.split())
            self.headings.append(Heading(each.level, title, self._length))
            self._add(heading(each.level, title).text)
        elif each.table:
            self._table(each)
        else:
            self._lines(each)

    def pages(self, count: int) -> tuple[int, ...]:
        """A page without text begins where the next one does."""
        begins = [self._length] * (count + 1)
        for page in reversed(range(count)):
            begins[page] = self._begins.get(page, begins[page + 1])
        return tuple(begins[:count])

    def _table(self, each: Paragraph) -> None:
        text = table(each.table).text
        ends = [self._length + line.end() for line in _LINE.finditer(text)]
        for page, row in enumerate(each.turns, start=each.lines[0].page + 1):
            self._begins.setdefault(page, ends[row])  # behind as many rows and the rule below the header
        self._add(text)

    def _lines(self, each: Paragraph) -> None:
        for joint, line in zip(each.joints, each.lines, strict=True):
            self._add(joint)
            self._begins.setdefault(line.page, self._length)
            self._add(line.text if joint == " " else paragraph(line.text).text)

    def _add(self, part: str) -> None:
        self._parts.append(part)
        self._length += len(part)


def _title(told: str, document: Document) -> str:
    """Its own unless a program made it up; else its first heading of the first level, or of any."""
    own = clean(" ".join(told.split()))
    if own and not _NO_TITLE.fullmatch(own):
        return own
    tops = [section for section in document.sections if document.text.startswith("# ", section.start)]
    return next((section.path[-1] for section in (*tops, *document.sections)), "")


def _without_text(pages: Sequence[_Page], found: Sequence[Paragraph]) -> Metadata:
    told = {line.page for each in found for line in each.lines}
    silent = sum(page.shows and number not in told for number, page in enumerate(pages))
    return {"pages_without_text": silent} if silent else {}


def _metadata(told: dict[str, str]) -> Metadata:
    named = {
        "author": clean(told.get("Author", "")),
        "keywords": clean(told.get("Keywords", "")).replace(";", ","),
        "description": clean(told.get("Subject", "")),
        "date": _date(told.get("CreationDate", "")),
    }
    return {key: value for key, value in named.items() if value}


def _date(told: str) -> str:
    """The day of `D:20240102030405+01'00'`, as far as it is told."""
    found = _DATE.match(told)
    return "-".join(part for part in found.groups() if part) if found else ""
