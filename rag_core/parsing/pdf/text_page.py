"""The lines of a PDF page as PDFium reads them, with the position and font of their letters.

PDFium is not thread-safe, not even with several documents: callers hold a lock. A change of the results needs a new
`pdf.VERSION`.
"""

import ctypes
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from math import hypot
from typing import NamedTuple

import pypdfium2
import pypdfium2.raw as pdfium

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import clean_text
from rag_core.parsing.pdf.columns import Cell
from rag_core.parsing.pdf.lines import MIN_CELL_GAP, NARROW_CELL_GAP, Line

_MARGIN = 0.1  # of a page's height, at its top and at its bottom
_TEXT_ANNOTATIONS = {pdfium.FPDF_ANNOT_WIDGET, pdfium.FPDF_ANNOT_FREETEXT, pdfium.FPDF_ANNOT_STAMP}
_BOLD_WEIGHT = 600
_MAX_FONT_NAME_BYTES = 128
_LEADERS = re.compile(r"(?:[ \t]?[._\u2026]){5,}")
_WORD = re.compile(r"\S+")
_INVISIBLE = re.compile(r"[\u00ad\u200b\ufeff]")
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}


class TextPage(NamedTuple):
    """`has_content`: the page shows something, which can be an image without text."""

    lines: list[Line]
    has_content: bool


def read_page(pdf: pypdfium2.PdfDocument, number: int) -> TextPage:
    """Reads a page, with its form fields, notes and stamps. Pages count from 0. Raises DocumentError if it is damaged.

    PDFium reads no text from annotations until they are part of the page. That can garble the page's own text, which is
    therefore read before.
    """
    try:
        with closing(pdf[number]) as page:
            own = _read_text(page, number)
            if not _has_text_annotations(page):
                return own
            pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY)
        with closing(pdf[number]) as page:
            flattened = _read_text(page, number)
    except pypdfium2.PdfiumError as error:
        raise DocumentError("parse", f"damaged PDF: page {number + 1}: {error}") from error
    kept = [line.text for line in own.lines[:-1]]
    if [line.text for line in flattened.lines[: len(kept)]] == kept:
        return flattened
    return TextPage(own.lines + flattened.lines[len(own.lines) :], flattened.has_content)


def _read_text(page: pypdfium2.PdfPage, number: int) -> TextPage:
    with closing(page.get_textpage()) as text:
        left, bottom, right, top = page.get_bbox()
        view = _View(left=left, bottom=bottom, right=right, top=top, rotation=page.get_rotation())
        return TextPage(list(_read_lines(text, number, view)), pdfium.FPDFPage_CountObjects(page) > 0)


def _has_text_annotations(page: pypdfium2.PdfPage) -> bool:
    subtypes = set[int]()
    for index in range(pdfium.FPDFPage_GetAnnotCount(page)):
        annotation = pdfium.FPDFPage_GetAnnot(page, index)
        subtypes.add(int(pdfium.FPDFAnnot_GetSubtype(annotation)))
        pdfium.FPDFPage_CloseAnnot(annotation)
    return bool(subtypes & _TEXT_ANNOTATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """The box of a page, and the degrees by which viewers rotate it clockwise."""

    left: float
    bottom: float
    right: float
    top: float
    rotation: int

    @property
    def height(self) -> float:
        return self.right - self.left if self.rotation in (90, 270) else self.top - self.bottom

    def rotate(self, x: float, y: float) -> tuple[float, float]:
        """The position of a point from the lower left corner of the rotated page."""
        match self.rotation:
            case 90:
                return y - self.bottom, self.right - x
            case 180:
                return self.right - x, self.top - y
            case 270:
                return self.top - y, x - self.left
            case _:
                return x - self.left, y - self.bottom

    def extent(self, box: pdfium.FS_RECTF) -> tuple[float, float]:
        """The ends of a box along a line of text."""
        if not self.rotation:
            return box.left - self.left, box.right - self.left
        first, last = self.rotate(box.left, box.bottom)[0], self.rotate(box.right, box.top)[0]
        return min(first, last), max(first, last)


class _Letters:
    """The letters of a page as PDFium measures them. Their numbers differ from their offsets in the page's text."""

    def __init__(self, page: pypdfium2.PdfTextPage, view: _View) -> None:
        self._page, self._view = page, view

    def number(self, offset: int) -> int:
        return int(pdfium.FPDFText_GetCharIndexFromTextIndex(self._page, offset))

    def baseline(self, letter: int) -> float:
        x, y = ctypes.c_double(), ctypes.c_double()
        pdfium.FPDFText_GetCharOrigin(self._page, letter, x, y)
        return self._view.rotate(x.value, y.value)[1]

    def extent(self, letter: int) -> tuple[float, float]:
        """The left and right end."""
        box = pdfium.FS_RECTF()
        pdfium.FPDFText_GetLooseCharBox(self._page, letter, box)
        return self._view.extent(box)

    def word_extents(self, words: Sequence[tuple[int, int]], start: int) -> Iterator[tuple[float, float]]:
        """Yields the left and right end of each word of the line that begins at the offset `start`.

        It runs for every word, and takes most of the time of a PDF.
        """
        box, measure = pdfium.FS_RECTF(), pdfium.FPDFText_GetLooseCharBox
        shift = self.number(start + words[0][0]) - words[0][0]
        for first, end in words:
            measure(self._page, shift + first, box)
            left, _ = self._view.extent(box)
            measure(self._page, shift + end - 1, box)
            _, right = self._view.extent(box)
            yield left, right

    def font_size(self, letter: int) -> float:
        """The size as printed, rounded to half a point: many programs set a font of size 1 and scale it."""
        matrix = pdfium.FS_MATRIX()
        pdfium.FPDFText_GetMatrix(self._page, letter, matrix)
        scale = hypot(matrix.c, matrix.d)
        size: float = pdfium.FPDFText_GetFontSize(self._page, letter)
        return max(round(size * scale * 2) / 2, 1.0)

    def is_bold(self, letter: int) -> bool:
        """True if the font has a bold weight, or `bold` in its name."""
        if pdfium.FPDFText_GetFontWeight(self._page, letter) >= _BOLD_WEIGHT:
            return True
        name, flags = ctypes.create_string_buffer(_MAX_FONT_NAME_BYTES), ctypes.c_int()
        pdfium.FPDFText_GetFontInfo(self._page, letter, name, _MAX_FONT_NAME_BYTES, flags)
        return b"bold" in name.value.lower()


def _read_lines(page: pypdfium2.PdfTextPage, number: int, view: _View) -> Iterator[Line]:
    """Yields PDFium's own lines, in its order. Only the ends of words are measured, not each letter."""
    letters = _Letters(page, view)
    start = 0
    for raw in page.get_text_range().split("\r\n"):
        if text := _clean_line(raw):
            # The font is that of a letter in the middle: bullets and signs can have another one
            indexes = [index for index, character in enumerate(raw) if character.isalnum()]
            middle = letters.number(start + (indexes[len(indexes) // 2] if indexes else 0))
            left, _ = letters.extent(letters.number(start + len(raw) - len(raw.lstrip())))
            _, right = letters.extent(letters.number(start + len(raw.rstrip()) - 1))
            baseline, size = letters.baseline(middle), letters.font_size(middle)
            words = _measure_words(letters, raw, start)
            yield Line(
                text=text,
                page=number,
                left=left,
                right=right,
                baseline=baseline,
                size=size,
                bold=letters.is_bold(middle),
                in_margin=not _MARGIN * view.height < baseline < (1 - _MARGIN) * view.height,
                cells=_find_cells(words, MIN_CELL_GAP * size),
                narrow_cells=_find_cells(words, NARROW_CELL_GAP * size),
            )
        start += len(raw) + 2


def _measure_words(letters: _Letters, raw: str, start: int) -> list[Cell]:
    words = [word.span() for word in _WORD.finditer(raw)]
    ends = letters.word_extents(words, start) if len(words) > 1 else ()
    return [Cell(raw[first:end], left, right) for (first, end), (left, right) in zip(words, ends, strict=False)]


def _find_cells(words: Sequence[Cell], max_gap: float) -> tuple[Cell, ...]:
    """The parts of a line between gaps wider than `max_gap`; empty if it has no such gap."""
    gaps = [i for i in range(1, len(words)) if words[i].left - words[i - 1].right > max_gap]
    if not gaps:
        return ()
    parts = [words[i:j] for i, j in pairwise([0, *gaps, len(words)])]
    return tuple(
        Cell(_clean_line(" ".join(word.text for word in part)), part[0].left, part[-1].right) for part in parts
    )


def _clean_line(raw: str) -> str:
    """The readable text of a line. Keeps U+FFFE, which PDFium writes where it joined a word cut at the line's end."""
    text = " ".join(raw.replace("\n", " ").translate(_LIGATURES).split())
    return clean_text(_LEADERS.sub(" ...", _INVISIBLE.sub("", text)))
