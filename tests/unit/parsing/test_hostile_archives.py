"""Behaviour of every zip-based parser with malicious bytes."""

import pytest
from zips import office, zip_bytes

from rag_core.errors import DocumentError
from rag_core.parsing.markup.epub import EpubParser
from rag_core.parsing.office.opendocument import OpenDocumentParser
from rag_core.parsing.office.sheets import SheetsParser
from rag_core.parsing.office.slides import SlidesParser
from rag_core.parsing.office.word import WordParser
from rag_core.protocols import Parser

BOMB = (
    "<!DOCTYPE a [<!ENTITY a '"
    + "x" * 1000
    + "'>"
    + "".join(f"<!ENTITY {name} '{f'&{of};' * 50}'>" for of, name in zip("abcde", "bcdef", strict=True))
    + "]>"
)
OUTSIDE = "<!DOCTYPE a [<!ENTITY f SYSTEM 'file:///etc/passwd'>]>"


def with_main_part(content: str) -> dict[str, tuple[Parser, bytes]]:
    """Each parser, and a document for it with this main part."""
    return {
        "docx": (WordParser(), office("word/document.xml", {"word/document.xml": content})),
        "pptx": (SlidesParser(), office("ppt/presentation.xml", {"ppt/presentation.xml": content})),
        "xlsx": (SheetsParser(), office("xl/workbook.xml", {"xl/workbook.xml": content})),
        "odt": (OpenDocumentParser(), zip_bytes({"content.xml": content})),
        "epub": (EpubParser(), zip_bytes({"META-INF/container.xml": content})),
    }


FORMATS = list(with_main_part(""))


def outcome(parser: Parser, body: bytes) -> str:
    """The text, or the reason of the DocumentError."""
    try:
        return parser.parse("file:///a", body).text
    except DocumentError as error:
        return error.reason


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_is_empty(name: str) -> None:
    parser, _ = with_main_part("")[name]
    assert outcome(parser, b"") == "empty"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("content", ["", "<a><b></a>", "no XML", "<a/>", "<a" + "\0" * 9 + "/>"])
def test_a_main_part_without_text_is_rejected_or_empty(name: str, content: str) -> None:
    parser, body = with_main_part(content)[name]
    text = outcome(parser, body)
    assert text == "" or text.startswith("damaged ")


@pytest.mark.parametrize("name", FORMATS)
def test_a_truncated_document_is_damaged(name: str) -> None:
    parser, body = with_main_part("<a/>")[name]
    for length in range(1, len(body), 37):
        assert outcome(parser, body[:length]).startswith("damaged archive: ")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("body", [b"%PDF-1.7", b"text", b"\x89PNG", b"PK\x05\x06" + bytes(18)])
def test_another_format_is_damaged(name: str, body: bytes) -> None:
    parser, _ = with_main_part("")[name]
    assert outcome(parser, body).startswith("damaged archive: ")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("protected", [b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le")])
def test_a_password_is_reported(name: str, protected: bytes) -> None:
    parser, _ = with_main_part("")[name]
    assert outcome(parser, protected) == "password protected"


@pytest.mark.parametrize("name", FORMATS)
def test_a_zip_bomb_is_refused(name: str) -> None:
    parser, _ = with_main_part("")[name]
    assert outcome(parser, zip_bytes({"content.xml": bytes(30_000_000)})).startswith("too large: ")


@pytest.mark.parametrize("name", FORMATS)
def test_entities_neither_grow_nor_read_files(name: str) -> None:
    for doctype, entity in ((BOMB, "f"), (OUTSIDE, "f")):
        for content in (f"{doctype}<a>&{entity};</a>", f'{doctype}<a b="&{entity};"/>'):
            parser, body = with_main_part(content)[name]
            text = outcome(parser, body)
            assert "root:" not in text
            assert len(text) < 1000


def test_entities_in_a_document_s_text_are_left_out() -> None:
    schema = "urn:oasis:names:tc:opendocument:xmlns"
    for doctype in (BOMB, OUTSIDE):
        content = (
            f'{doctype}<o:d xmlns:o="{schema}:office:1.0" xmlns:t="{schema}:text:1.0"><o:body><o:text>'
            "<t:p>before &f; after</t:p></o:text></o:body></o:d>"
        )
        text = outcome(OpenDocumentParser(), zip_bytes({"content.xml": content}))
        assert text.startswith(("before ", "damaged XML: Maximum entity amplification"))
