import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pypdfium2
import pytest
from pdfs import pdf
from PIL import Image

from rag_core.config import NativeParsing, TesseractOcr
from rag_core.errors import ConfigError, DocumentError
from rag_core.parsing.document import parse
from rag_core.parsing.formats import ParserChoice, recipe_part
from rag_core.parsing.pdf import tesseract
from rag_core.parsing.pdf.tesseract import Picture, Tesseract, build_lines
from rag_core.types import Document
from rag_core.wiring.parsing import check_parsers

LINES = ("The gates are opened at spring tide,", "never more than two of them at once.")
HEADER = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext\n"
needs_tesseract = pytest.mark.skipif(
    shutil.which("tesseract") is None, reason="needs tesseract: install the Debian package tesseract-ocr"
)


@pytest.fixture(autouse=True)
def _forget_installation() -> Iterator[None]:
    yield
    tesseract.find_version.cache_clear()
    tesseract._find_languages.cache_clear()


def choice(max_pages: int = 9, timeout: float = 60.0, languages: tuple[str, ...] = ("eng",)) -> ParserChoice:
    return ParserChoice(ocr=Tesseract(languages=languages, max_pages=max_pages, timeout=timeout))


def read(name: str, body: bytes, parsers: ParserChoice) -> Document:
    return parse(f"file:///{name}", body, detect_language=False, file_mb=9, text_mb=9, choice=parsers)


def failure(name: str, body: bytes, parsers: ParserChoice) -> DocumentError:
    with pytest.raises(DocumentError) as failed:
        read(name, body, parsers)
    return failed.value


def scan(*pages: tuple[str, ...], turned: int = 0) -> list[Image.Image]:
    """Pictures of pages with these lines, turned by some degrees to the left."""
    drawn = pypdfium2.PdfDocument(pdf(*pages))
    return [page.render(scale=200 / 72, grayscale=True).to_pil().rotate(turned, expand=True) for page in drawn]


def file(pictures: list[Image.Image], format_: str = "PDF") -> bytes:
    out = BytesIO()
    pages = {"save_all": True, "append_images": pictures[1:]} if len(pictures) > 1 else {}
    pictures[0].save(out, format_, resolution=200, dpi=(200, 200), **pages)
    return out.getvalue()


def with_printed_page(scanned: bytes, *lines: str) -> bytes:
    """The scanned pages and a page with a text layer after them."""
    out, document = BytesIO(), pypdfium2.PdfDocument(scanned)
    document.import_pages(pypdfium2.PdfDocument(pdf(lines)))
    document.save(out)
    return out.getvalue()


@needs_tesseract
@pytest.mark.slow
@pytest.mark.parametrize("turned", [0, 90, 180, 270])
def test_a_scanned_page_is_read_whichever_way_up_it_is(turned: int) -> None:
    document = read("a.pdf", file(scan(LINES * 6, turned=turned)), choice())
    assert document.text.split() == " ".join(LINES * 6).split()
    assert document.metadata["flags"] == ["ocr"]


@needs_tesseract
@pytest.mark.slow
def test_only_pages_without_a_text_layer_are_read_by_ocr(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []
    run = Tesseract._run

    def record(ocr: Tesseract, picture: Picture, timeout: float) -> str:
        numbers.append(picture.dots_per_inch)
        return run(ocr, picture, timeout)

    monkeypatch.setattr(Tesseract, "_run", record)
    document = read("a.pdf", with_printed_page(file(scan(LINES)), "A printed page."), choice())
    assert document.text == f"{' '.join(LINES)}\n\nA printed page.\n"
    assert document.pages == (0, document.text.index("A printed"))
    assert numbers == [300]


@needs_tesseract
@pytest.mark.slow
@pytest.mark.parametrize(("name", "format_"), [("a.png", "PNG"), ("a.jpg", "JPEG"), ("a.tif", "TIFF")])
def test_an_image_is_a_page(name: str, format_: str) -> None:
    document = read(name, file(scan(LINES), format_), choice())
    assert document.text == f"{' '.join(LINES)}\n"
    assert (document.media_type, document.pages) == (f"image/{format_.lower()}", (0,))
    assert dict(document.metadata) == {"flags": ["ocr"], "format": "image"}


@needs_tesseract
@pytest.mark.slow
def test_each_picture_of_a_tiff_is_a_page() -> None:
    document = read("a.tiff", file(scan(LINES[:1], LINES[1:]), "TIFF"), choice())
    assert document.pages == (0, document.text.index("never"))


@needs_tesseract
def test_a_page_that_shows_no_text_has_a_reason() -> None:
    blank = file([Image.new("L", (400, 400), 255)])
    assert failure("a.pdf", blank, choice()).reason == "no text layer, and OCR found no text"


@needs_tesseract
def test_more_scanned_pages_than_the_limit_fail_by_name() -> None:
    reason = failure("a.pdf", file(scan(LINES, LINES)), choice(max_pages=1)).reason
    assert reason == "too large: 2 pages without text, limit 1 for OCR"
    reason = failure("a.tif", file(scan(LINES, LINES), "TIFF"), choice(max_pages=1)).reason
    assert reason == "too large: more than 1 pages, the limit for OCR"


@needs_tesseract
def test_a_slow_scan_fails_with_the_pages_that_were_read() -> None:
    reason = failure("a.pdf", file(scan(LINES)), choice(timeout=0.001)).reason
    assert reason == "OCR took longer than 0.001 s: 0 of 1 pages read"


def test_without_ocr_scans_and_images_are_rejected_with_a_reason() -> None:
    scanned = failure("a.pdf", file(scan(LINES)), ParserChoice())
    assert scanned.reason.startswith("no text layer: a scanned PDF; set parsing.ocr to {type: tesseract}")
    image = failure("a.png", file(scan(LINES), "PNG"), ParserChoice())
    assert (image.reason, image.status) == ("unsupported: a PNG image", "skipped")


def test_a_damaged_image_fails_by_name() -> None:
    reason = failure("a.png", file(scan(LINES), "PNG")[:900], choice()).reason
    assert reason.startswith("damaged image: ")


def test_a_large_image_is_not_decoded() -> None:
    image = BytesIO()
    Image.new("1", (10_000, 6_000)).save(image, "PNG")
    reason = failure("a.png", image.getvalue(), choice()).reason
    assert reason == "too large: a picture of 10000 x 6000 pixels, limit 50000000"


def test_without_tesseract_the_check_and_the_document_name_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    tesseract.find_version.cache_clear()
    missing = "no program tesseract on the PATH; install it, e.g. the Debian package tesseract-ocr"
    with pytest.raises(ConfigError, match=f"parsing.ocr: {missing}"):
        check_parsers(NativeParsing(ocr=TesseractOcr(type="tesseract")))
    rejected = failure("a.pdf", file(scan(LINES)), choice())
    assert (rejected.reason, rejected.status) == (f"OCR: {missing}", "skipped")


def test_a_missing_language_names_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "tesseract"
    program.write_text('#!/bin/sh\necho "tesseract 5.3.0"\necho eng\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    tesseract.find_version.cache_clear()
    tesseract._find_languages.cache_clear()
    assert Tesseract(languages=("eng", "deu", "chi_sim"), max_pages=1, timeout=1).find_defect() == (
        "tesseract has no language deu, chi_sim; "
        "install it, e.g. the Debian package tesseract-ocr-deu, tesseract-ocr-chi-sim"
    )


def test_the_recipe_of_pdfs_and_images_names_tesseract_and_the_languages() -> None:
    for uri in ("a.pdf", "a.png", "a.unknown"):
        assert recipe_part(uri, choice()) != recipe_part(uri)
        assert recipe_part(uri, choice()) != recipe_part(uri, choice(languages=("deu", "eng")))
    assert recipe_part("a.docx", choice()) == recipe_part("a.docx")


def word(text: str, left: int, top: int, line: int, height: int = 30, confidence: float = 90) -> str:
    return f"5\t1\t1\t1\t{line}\t1\t{left}\t{top}\t{20 * len(text)}\t{height}\t{confidence}\t{text}\n"


def lines_of(*words: str) -> list[tuple[str, float]]:
    picture = Picture(pixels=np.zeros((1000, 800), np.uint8), dots_per_inch=72)
    parsed = tesseract._parse_words(HEADER + "".join(words))
    return [(line.text, line.size) for line in build_lines(parsed, 0, picture)]


def test_specks_are_left_out_and_a_bullet_is_one() -> None:
    assert lines_of(word("\u00a2", 0, 0, 1), word("north", 40, 0, 1), word("~", 0, 90, 2, confidence=12)) == [
        ("\u2022 north", 35)
    ]


def test_only_clearly_larger_lines_have_another_size() -> None:
    assert lines_of(
        word("Gates", 0, 0, 1, height=60), word("opened", 0, 90, 2), word("noon", 0, 130, 3, 22), word("at", 0, 170, 4)
    ) == [("Gates", 70), ("opened", 35), ("noon", 35), ("at", 35)]


SANDBOXED = """
import sys
from rag_core.config import Limits, NativeParsing, TesseractOcr
from rag_core.wiring.parsing import open_parser
parser = open_parser(NativeParsing(ocr=TesseractOcr(type="tesseract")), Limits())
print(parser("file:///a.pdf", open(sys.argv[1], "rb").read()).text)
"""


@needs_tesseract
@pytest.mark.slow
def test_tesseract_runs_within_the_limits_of_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(file(scan(LINES)))
    process = subprocess.run(
        [sys.executable, "-c", SANDBOXED, tmp_path / "a.pdf"], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == " ".join(LINES)
