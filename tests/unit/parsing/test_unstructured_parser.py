import socket
import sys
from io import BytesIO
from typing import NoReturn

import pytest
from poison import docx

from rag_core.config import Limits, UnstructuredParsing
from rag_core.errors import ConfigError, DocumentError
from rag_core.parsing.document import parse
from rag_core.parsing.formats import ParserChoice, load_parser, recipe_part
from rag_core.parsing.unstructured_parser import PARTITIONERS, UnstructuredParser
from rag_core.types import Document
from rag_core.wiring.parsing import check_parsers, choose_parsers, open_parser

pytestmark = pytest.mark.slow  # the library takes seconds to load

CHOICE = ParserChoice(unstructured=frozenset(PARTITIONERS))
GATES = "# Gates\n\nAt spring tide.\n\n- north\n    - small\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def read(name: str, body: bytes) -> Document:
    return parse(f"file:///{name}", body, detect_language=False, file_mb=1, text_mb=1, choice=CHOICE)


def word_file() -> bytes:
    from docx import Document as WordDocument
    from docx.oxml import OxmlElement

    document, out = WordDocument(), BytesIO()
    document.add_heading("Harbour", 0)
    document.add_heading("Gates", 2)
    document.add_paragraph("Opened at spring tide.")
    document.add_paragraph("north", style="List Bullet")
    document.add_paragraph("small", style="List Bullet 2")
    document.add_paragraph().add_run()._r.append(OxmlElement("w:lastRenderedPageBreak"))
    table = document.add_table(2, 2)
    for cell, text in zip([cell for row in table.rows for cell in row.cells], ("gate", "m", "north", "4"), strict=True):
        cell.text = text
    document.save(out)
    return out.getvalue()


def slides_file() -> bytes:
    from pptx import Presentation

    presentation, out = Presentation(), BytesIO()
    for title, text in [("Gates", "Not A Title"), ("Tides", "They turn twice a day.")]:
        slide = presentation.slides.add_slide(presentation.slide_layouts[5])
        slide.shapes.title.text = title
        slide.shapes.add_textbox(0, 0, 999, 999).text_frame.text = text
    presentation.save(out)
    return out.getvalue()


def workbook_file() -> bytes:
    from openpyxl import Workbook

    workbook, out = Workbook(), BytesIO()
    workbook.active.title = "Gates"
    workbook.active.append(["gate", "metres"])
    workbook.active.append(["north", 4])
    workbook.save(out)
    return out.getvalue()


@pytest.mark.slow
def test_a_word_file_has_headings_lists_tables_and_pages() -> None:
    document = read("a.docx", word_file())
    before, after = document.text.split("\n\n| ")
    assert before == "# Harbour\n\n## Gates\n\nOpened at spring tide.\n\n- north\n    - small"
    assert after == "gate | m |\n| --- | --- |\n| north | 4 |\n"
    assert document.pages == (0, document.text.index("| gate"))
    assert [section.path for section in document.sections] == [("Harbour",), ("Harbour", "Gates")]
    assert document.title == "Harbour"
    assert document.metadata["categories"] == ["ListItem", "Table", "Title", "UncategorizedText"]


def test_a_merged_cell_is_repeated_as_in_our_own_tables() -> None:
    from docx import Document as WordDocument

    document, out = WordDocument(), BytesIO()
    table = document.add_table(2, 3)
    for column, text in enumerate(("gate", "May", "June")):
        table.cell(0, column).text = text
    table.cell(1, 0).text = "north"
    table.cell(1, 1).merge(table.cell(1, 2)).text = "closed"
    document.save(out)
    text = read("a.docx", out.getvalue()).text
    assert text == "| gate | May | June |\n| --- | --- | --- |\n| north | closed | closed |\n"


def test_each_slide_is_a_page_and_only_its_title_a_heading() -> None:
    document = read("a.pptx", slides_file())
    assert document.text == "## Gates\n\nNot A Title\n\n## Tides\n\nThey turn twice a day.\n"
    assert document.pages == (0, document.text.index("## Tides"))


def test_each_sheet_is_a_section() -> None:
    document = read("a.xlsx", workbook_file())
    assert document.text == "## Gates\n\n| gate | metres |\n| --- | --- |\n| north | 4 |\n"
    assert (document.title, document.pages) == ("Gates", ())


def test_markdown_keeps_its_outline() -> None:
    document = read("a.md", GATES.encode())
    assert document.text == GATES.replace("|---|---|", "| --- | --- |")
    assert document.metadata["format"] == "markdown"


def test_a_table_in_an_old_encoding_is_read() -> None:
    assert read("a.csv", "Größe,Höhe\n1,2\n".encode("latin-1")).text == "| Größe | Höhe |\n| --- | --- |\n| 1 | 2 |\n"


def test_other_formats_keep_their_own_parser() -> None:
    assert read("a.txt", b"words").text == "words"
    assert not isinstance(load_parser("pdf", CHOICE), UnstructuredParser)


def test_a_damaged_file_fails_by_name() -> None:
    with pytest.raises(DocumentError) as failed:
        read("a.docx", docx("no relationships"))
    assert failed.value.reason.startswith("unstructured failed: ")
    assert failed.value.status == "failed"


def test_a_file_without_text_is_skipped() -> None:
    with pytest.raises(DocumentError) as failed:
        read("a.html", b"<html><body></body></html>")
    assert (failed.value.reason, failed.value.status) == ("empty", "skipped")


@pytest.mark.slow
def test_it_runs_within_the_limits_of_the_sandbox() -> None:
    parser = open_parser(UnstructuredParsing(type="unstructured", formats=("docx",), memory_mb=256), Limits())
    document = parser("file:///a.docx", word_file())
    open_parser.cache_clear()
    assert document.metadata["categories"] == ["ListItem", "Table", "Title", "UncategorizedText"]


def test_only_documents_that_it_reads_depend_on_the_library() -> None:
    word_only = ParserChoice(unstructured=frozenset({"docx"}))
    recipes = [recipe_part(uri, word_only) == recipe_part(uri) for uri in ("a.docx", "a.pptx", "a.txt")]
    assert recipes == [False, True, True]
    assert "unstructured 0." in recipe_part("a.docx", word_only)


def test_every_format_of_the_settings_has_a_partitioner() -> None:
    assert choose_parsers(UnstructuredParsing(type="unstructured")).unstructured == set(PARTITIONERS)


def test_without_the_library_the_check_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_core.wiring.parsing.find_spec", lambda name: None if name == "unstructured" else sys)
    with pytest.raises(ConfigError) as failed:
        check_parsers(UnstructuredParsing(type="unstructured"))
    assert str(failed.value) == (
        "parsing.type unstructured requires unstructured, which is not installed: install the extra [unstructured]"
    )
