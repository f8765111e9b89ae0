import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO

import pypdfium2
import pypdfium2.raw as pdfium
import pytest

from rag_core.errors import DocumentError
from rag_core.parsing.pdf import pdf as module
from rag_core.parsing.pdf import text_page
from rag_core.parsing.pdf.pdf import PdfParser
from rag_core.types import Document

INFO = "/Title (Mill report) /Author (Ada Ferry; Ben Weir) /Keywords (mills, water) /CreationDate (D:20240203040506Z)"


def build_pdf(
    pages: Sequence[str],
    info: str = "",
    outline: Sequence[tuple[str, int]] = (),
    trailer: str = "",
    page_entries: str = "/MediaBox [0 0 600 800]",
    field: str = "",
) -> bytes:
    """A PDF with these content streams, in Helvetica (F1) and Helvetica-Bold (F2), on pages of 600 x 800 points.

    `outline` holds bookmarks with their pages; `field` is a form field, the object after the pages.
    """
    first = 6 + 2 * len(pages)
    kids = " ".join(f"{6 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {f'/Outlines {first} 0 R' if outline else ''} "
        f"{f'/AcroForm << /Fields [{first} 0 R] >>' if field else ''} >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold >>",
        f"<< {info} >>",
    ]
    for number, page in enumerate(pages):
        fonts = "/Resources << /Font << /F1 3 0 R /F2 4 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R {page_entries} {fonts} /Contents {7 + 2 * number} 0 R >>")
        objects.append(f"<< /Length {len(page)} >>\nstream\n{page}\nendstream")
    objects += [field] if field else []
    if outline:
        objects.append(f"<< /First {first + 1} 0 R /Last {first + len(outline)} 0 R /Count {len(outline)} >>")
    for number, (title, page) in enumerate(outline, start=first + 1):
        following = f"/Next {number + 1} 0 R" if number < first + len(outline) else ""
        objects.append(f"<< /Title ({title}) /Parent {first} 0 R /Dest [{6 + 2 * page} 0 R /Fit] {following} >>")
    return _with_cross_references(objects, trailer)


def _with_cross_references(objects: Sequence[str], trailer: str) -> bytes:
    out, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, text in enumerate(objects, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{text}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    count = len(objects) + 1
    end = (
        f"xref\n0 {count}\n0000000000 65535 f \n{table}trailer\n<< /Size {count} /Root 1 0 R /Info 5 0 R {trailer} >>\n"
    )
    return bytes(out) + f"{end}startxref\n{len(out)}\n%%EOF".encode()


def page_of(*lines: tuple[str, int] | tuple[str, int, str]) -> str:
    """The content stream of lines, each a text and a height, in the font `F1 10` unless it names another."""
    return "\n".join(f"BT /{font[0] if font else 'F1 10'} Tf 72 {y} Td ({text}) Tj ET" for text, y, *font in lines)


def parse(body: bytes) -> Document:
    return PdfParser().parse("file:///a.pdf", body)


def failure(body: bytes) -> DocumentError:
    with pytest.raises(DocumentError) as failed:
        parse(body)
    return failed.value


BODY = ("The mill stands at the ferry, and has done so for three hundred years of its", 700)


def test_lines_become_paragraphs_and_pages_begin_where_they_do() -> None:
    first = page_of(BODY, ("long life.", 688), ("Another paragraph stands apart from the first one.", 660))
    document = parse(build_pdf([first, "", page_of(("The second page.", 700))], INFO))
    assert document.text == (
        "The mill stands at the ferry, and has done so for three hundred years of its long life.\n\n"
        "Another paragraph stands apart from the first one.\n\nThe second page.\n"
    )
    assert document.pages == (0, 141, 141)
    assert document.text[141:] == "The second page.\n"
    assert (document.media_type, document.title) == ("application/pdf", "Mill report")
    assert document.metadata == {"author": "Ada Ferry; Ben Weir", "keywords": "mills, water", "date": "2024-02-03"}


def test_letters_of_another_size_are_headings_with_sections() -> None:
    page = page_of(
        ("The Mill", 740, "F1 20"), ("Its wheel", 720, "F1 14"), BODY, ("Its stones", 640, "F1 14"), ("Old.", 620)
    )
    document = parse(build_pdf([page]))
    assert document.text.startswith("# The Mill\n\n## Its wheel\n\nThe mill")
    assert [section.path for section in document.sections] == [
        ("The Mill",),
        ("The Mill", "Its wheel"),
        ("The Mill", "Its stones"),
    ]
    assert all(document.text[section.start :].startswith("#") for section in document.sections)
    assert document.title == "The Mill"


def test_bookmarks_that_occur_in_the_text_define_the_headings() -> None:
    page = page_of(
        ("Large but no bookmark", 740, "F1 20"), BODY, ("Its stones", 640), ("They are old.", 600), ("Its end", 560)
    )
    document = parse(build_pdf([page], outline=[("Its stones", 0), ("2 Its End", 0)]))
    assert [section.path for section in document.sections] == [("Its stones",), ("Its end",)]
    assert "\n\n# Its stones\n\nThey are old.\n\n# Its end\n" in document.text


def test_bookmarks_whose_titles_are_not_in_the_text_make_no_sections() -> None:
    document = parse(build_pdf([page_of(BODY)], outline=[("Cover", 0), ("Back", 0), ("Index", 0)]))
    assert document.sections == ()


def test_headers_and_page_numbers_are_left_out() -> None:
    pages = [page_of(("Mill report", 780), (f"Page {'abcd'[n]} says this.", 500), (str(n + 1), 20)) for n in range(4)]
    document = parse(build_pdf(pages))
    assert document.text == "".join(f"Page {letter} says this.\n\n" for letter in "abcd")[:-1]
    assert [document.text[begin : begin + 6] for begin in document.pages] == ["Page a", "Page b", "Page c", "Page d"]


def test_the_margin_is_measured_from_where_the_page_begins() -> None:
    pages = [page_of(("Mill report", 1780), ("The same words on each page.", 1500), ("Its end.", 1300))] * 3
    text = parse(build_pdf(pages, page_entries="/MediaBox [0 1000 600 1800]")).text
    assert text == "The same words on each page.\n\nIts end.\n\n" * 2 + "The same words on each page.\n\nIts end.\n"


@pytest.mark.parametrize(
    ("rotation", "matrix", "begin"),
    [
        (90, "0 1 -1 0", lambda x, y: (600 - y, x)),
        (180, "-1 0 0 -1", lambda x, y: (600 - x, 800 - y)),
        (270, "0 -1 1 0", lambda x, y: (y, 800 - x)),
    ],
)
def test_a_rotated_page_is_read_as_it_is_displayed(
    rotation: int, matrix: str, begin: Callable[[int, int], tuple[int, int]]
) -> None:
    def at(x: int, y: int, text: str) -> str:
        left, bottom = begin(x, y)
        return f"BT /F1 10 Tf {matrix} {left} {bottom} Tm ({text}) Tj ET"

    rows = [("Year", "Ducks", 450), ("2019", "120", 438), ("2020", "135", 426)]
    cells = [at(x, y, text) for left, right, y in rows for x, text in ((72, left), (172, right))]
    page = "\n".join([at(72, 500, BODY[0]), at(72, 488, "long life."), *cells])
    assert parse(build_pdf([page], page_entries=f"/MediaBox [0 0 600 800] /Rotate {rotation}")).text == (
        f"{BODY[0]} long life.\n\n| Year | Ducks |\n| --- | --- |\n| 2019 | 120 |\n| 2020 | 135 |\n"
    )


def test_a_table_over_two_pages_has_one_header_and_each_page_begins_at_its_row() -> None:
    def page(*rows: tuple[str, str]) -> str:
        return "\n".join(
            f"BT /F1 10 Tf 72 {700 - 14 * n} Td ({left}) Tj 100 0 Td ({right}) Tj ET"
            for n, (left, right) in enumerate(rows)
        )

    head = ("Year", "Ducks")
    document = parse(build_pdf([page(head, ("2019", "120"), ("2020", "135")), page(head, ("2021", "140"))]))
    assert document.text == "| Year | Ducks |\n| --- | --- |\n| 2019 | 120 |\n| 2020 | 135 |\n| 2021 | 140 |\n"
    assert document.text[document.pages[1] :] == "| 2021 | 140 |\n"


def test_the_values_of_form_fields_are_read() -> None:
    rectangle = "/Subtype /Widget /FT /Tx /T (name) /F 4 /Rect [200 690 400 710] /DA (/Helv 10 Tf 0 g)"
    body = build_pdf(
        [page_of(("Name of the miller:", 600))],
        page_entries="/MediaBox [0 0 600 800] /Annots [8 0 R]",
        field=f"<< /Type /Annot {rectangle} /V (Ada Ferry) >>",
    )
    assert parse(body).text == "Name of the miller:\n\nAda Ferry\n"


@pytest.mark.parametrize("title", ["Microsoft Word - report.doc", "untitled", "report.odt"])
def test_a_title_that_a_program_made_up_is_not_used(title: str) -> None:
    assert parse(build_pdf([page_of(("Own", 740, "F1 20"), BODY)], f"/Title ({title})")).title == "Own"


def test_rows_with_wide_gaps_are_a_table() -> None:
    rows = [("Year", "Ducks", 640), ("2019", "120", 628), ("2020", "135 more", 616)]
    cells = "\n".join(f"BT /F1 10 Tf 72 {y} Td ({left}) Tj 100 0 Td ({right}) Tj ET" for left, right, y in rows)
    document = parse(build_pdf([f"{page_of(BODY)}\n{cells}\n{page_of(('After it.', 580))}"]))
    table = "| Year | Ducks |\n| --- | --- |\n| 2019 | 120 |\n| 2020 | 135 more |"
    assert document.text.endswith(f"of its\n\n{table}\n\nAfter it.\n")


def test_text_that_looks_like_markdown_makes_no_section() -> None:
    assert parse(build_pdf([page_of(("# 7 is a number", 700))])).text == "\\# 7 is a number\n"


def test_a_scan_and_an_empty_file_fail_with_different_reasons() -> None:
    failed = failure(build_pdf(["", "0 0 100 100 re f"]))
    assert failed.reason.startswith("no text layer: a scanned PDF; set parsing.ocr to {type: tesseract}, or run OCR")
    assert failed.status == "failed"
    assert (failure(b"").reason, failure(b"").status) == ("empty", "skipped")


def test_a_stamp_on_each_page_does_not_hide_a_scan_and_pages_without_text_are_counted() -> None:
    stamped = [page_of(("Confidential", 780), (f"ABC-00000{number}", 20)) for number in range(6)]
    assert failure(build_pdf(stamped)).reason.startswith("no text layer: a scanned PDF")
    document = parse(build_pdf([*stamped, page_of(BODY), "0 0 100 100 re f", ""]))
    assert document.metadata == {"pages_without_text": 7}
    assert "pages_without_text" not in parse(build_pdf([page_of(BODY), ""])).metadata


def test_an_encrypted_document_is_password_protected_and_an_empty_one_after_it_is_not() -> None:
    key = "<" + "41" * 32 + ">"
    encryption = f"/Encrypt << /Filter /Standard /V 1 /R 2 /O {key} /U {key} /P -4 >> /ID [<00> <00>]"
    assert failure(build_pdf([page_of(BODY)], trailer=encryption)).reason == "password protected"
    assert failure(build_pdf([])).reason == "damaged PDF: Failed to load document (PDFium: Data format error)."


@pytest.mark.parametrize("body", [b"%PDF-1.7\n%%EOF", b"%PDF-1.4\n" + b"\0" * 999, build_pdf([])])
def test_damage_fails_with_its_reason(body: bytes) -> None:
    assert failure(body).reason.startswith(("damaged PDF: ", "no text layer"))


def test_a_truncated_document_is_read_up_to_its_end_or_fails_with_its_reason() -> None:
    body, begin = build_pdf([page_of((f"Words of page {number}.", 700)) for number in range(9)]), b"%PDF-1.4\n"
    for_the_web = body.replace(begin, begin + b"trailer\n<< /Size 24 /Root 1 0 R >>\n")
    read = {read_in_part(file, share) for file in (body, for_the_web) for share in range(1, 10)} - {""}
    assert read
    assert all(parse(body).text.startswith(text) for text in read)


def read_in_part(body: bytes, share: int) -> str:
    """The text of the first `share` tenths of a file; empty if they are refused."""
    try:
        return parse(body[: len(body) * share // 10]).text
    except DocumentError as failed:
        assert failed.reason.startswith(("damaged PDF: ", "no text layer"))  # noqa: PT017
        return ""


def test_more_pages_than_the_limit_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PAGES", 3)
    assert parse(build_pdf([page_of(("A", 700))] * 3)).pages == (0, 3, 6)
    assert failure(build_pdf([page_of(("a", 700))] * 4)).reason == "too large: 4 pages, limit 3"


def test_a_document_that_pdfium_itself_wrote_is_read() -> None:
    with pypdfium2.PdfDocument.new() as pdf:
        page = pdf.new_page(600, 800)
        text = pdfium.FPDFPageObj_NewTextObj(pdf, b"Helvetica", 12.0)
        wide = "Größe 42\0".encode("utf-16-le")
        pdfium.FPDFText_SetText(text, ctypes.cast(wide, ctypes.POINTER(ctypes.c_ushort)))
        pdfium.FPDFPageObj_Transform(text, 1, 0, 0, 1, 72, 700)
        pdfium.FPDFPage_InsertObject(page, text)
        page.gen_content()
        out = BytesIO()
        pdf.save(out)
    assert parse(out.getvalue()).text == "Größe 42\n"


def test_text_that_flattening_garbles_is_read_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """PDFium reads a field only after it has made it a part of the page."""
    read, count = text_page._read_text, 0

    def read_garbled(page: pypdfium2.PdfPage, number: int) -> text_page.TextPage:
        nonlocal count
        count += 1
        lines, has_content = read(page, number)
        garbled = [
            replace(line, text="\u0001\u0002") if count == 2 and "Ada" not in line.text else line for line in lines
        ]
        return text_page.TextPage(garbled, has_content)

    monkeypatch.setattr(text_page, "_read_text", read_garbled)
    rectangle = "/Subtype /Widget /FT /Tx /T (name) /F 4 /Rect [200 490 400 510] /DA (/Helv 10 Tf 0 g)"
    body = build_pdf(
        [page_of(("Name of the miller:", 600), ("Place:", 580))],
        page_entries="/MediaBox [0 0 600 800] /Annots [8 0 R]",
        field=f"<< /Type /Annot {rectangle} /V (Ada Ferry) >>",
    )
    assert parse(body).text == "Name of the miller: Place:\n\nAda Ferry\n"
