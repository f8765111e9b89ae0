"""Images of pages: scans and photographs in PNG, JPEG and TIFF. They become pages of a PDF, which OCR reads."""

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO

from PIL import Image, ImageOps, ImageSequence

from rag_core.errors import DocumentError
from rag_core.parsing.pdf.pdf import PdfParser
from rag_core.parsing.pdf.tesseract import Tesseract
from rag_core.types import Document

VERSION = 1

_FORMATS = ("PNG", "JPEG", "TIFF")
_MAX_PIXELS = 50_000_000
_RESOLUTION = 300
_MIN_RESOLUTION = 70  # fewer dots per inch are a placeholder
_JPEG_QUALITY = 95


class ImageParser:
    def __init__(self, ocr: Tesseract) -> None:
        self._ocr = ocr

    def parse(self, uri: str, body: bytes) -> Document:
        """Reads each picture of the file as a page. Raises DocumentError if it has too many or too large ones."""
        try:
            with Image.open(BytesIO(body), formats=_FORMATS) as image:
                resolution = float(image.info.get("dpi", (0, 0))[0])
                media_type = Image.MIME[image.format or ""]
                pages = list(self._read_pictures(image))
        except (OSError, ValueError, SyntaxError, TypeError, ArithmeticError, Image.DecompressionBombError) as error:
            raise DocumentError("parse", f"damaged image: {error}") from error
        out = BytesIO()
        first, *others = pages
        first.save(
            out,
            "PDF",
            save_all=True,
            append_images=others,
            resolution=resolution if resolution >= _MIN_RESOLUTION else _RESOLUTION,
            quality=_JPEG_QUALITY,
            creationDate=None,
        )
        return replace(PdfParser(self._ocr).parse(uri, out.getvalue()), media_type=media_type)

    def _read_pictures(self, image: Image.Image) -> Iterator[Image.Image]:
        """Yields the pictures in shades of grey, upright if the camera recorded how it was held."""
        for number, frame in enumerate(ImageSequence.Iterator(image), start=1):
            if number > self._ocr.max_pages:
                raise DocumentError("parse", f"too large: more than {self._ocr.max_pages} pages, the limit for OCR")
            if frame.width * frame.height > _MAX_PIXELS:
                size = f"{frame.width} x {frame.height}"
                raise DocumentError("parse", f"too large: a picture of {size} pixels, limit {_MAX_PIXELS}")
            yield ImageOps.exif_transpose(frame).convert("L")
