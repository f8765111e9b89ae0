"""The pages of a PDF as pictures. PDFium is not thread-safe: callers hold a lock."""

from contextlib import closing
from math import sqrt

import pypdfium2

from rag_core.errors import DocumentError
from rag_core.parsing.pdf.tesseract import Picture

_RESOLUTION = 300
_POINTS_PER_INCH = 72
_MAX_PIXELS = 20_000_000
"""The size of a picture; larger pages than A3 are drawn with a lower resolution."""


def draw_page(pdf: pypdfium2.PdfDocument, number: int) -> Picture:
    """Draws a page in shades of grey; pages count from 0. Raises DocumentError if it is damaged."""
    try:
        with closing(pdf[number]) as page:
            width, height = page.get_size()
            resolution = int(min(_RESOLUTION, _POINTS_PER_INCH * sqrt(_MAX_PIXELS / max(width * height, 1))))
            with closing(page.render(scale=max(resolution, 1) / _POINTS_PER_INCH, grayscale=True)) as bitmap:
                pixels = bitmap.to_numpy().copy()
                return Picture(pixels=pixels.reshape(pixels.shape[:2]), dots_per_inch=max(resolution, 1))
    except pypdfium2.PdfiumError as error:
        raise DocumentError("parse", f"damaged PDF: page {number + 1}: {error}") from error
