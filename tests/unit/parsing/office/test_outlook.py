import struct
from datetime import UTC, datetime

from compound import compound

from rag_core.errors import DocumentError
from rag_core.parsing.office.outlook import OutlookParser
from rag_core.types import Document

TICKS = 10**7 * int((datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC) - datetime(1601, 1, 1, tzinfo=UTC)).total_seconds())
PROPERTIES = bytes(32) + struct.pack("<IIQ", 0x00390040, 6, TICKS) + struct.pack("<IIQ", 0x0E070003, 6, 1)


def wide(text: str) -> bytes:
    return text.encode("utf-16-le")


MAIL = {
    "__properties_version1.0": PROPERTIES,
    "__substg1.0_0037001F": wide("Größe 42"),
    "__substg1.0_0C1A001F": wide("Ada Weir"),
    "__substg1.0_5D01001F": wide("ada@mill.org"),
    "__substg1.0_0E04001F": wide("Ben Ferry\0"),
    "__substg1.0_1000001F": wide("Hello Ben,\r\n\r\nthe wheel turns.\r\n"),
}


def parse(streams: dict[str, bytes]) -> Document:
    return OutlookParser().parse("file:///a.msg", compound(streams))


def test_headers_are_the_first_paragraph_and_the_metadata() -> None:
    document = parse(MAIL)
    assert document.text == (
        "From: Ada Weir <ada@mill.org>\nTo: Ben Ferry\nDate: 2024-02-03 04:05 UTC\nSubject: Größe 42\n\n"
        "Hello Ben,\n\nthe wheel turns.\n"
    )
    assert document.title == "Größe 42"
    assert document.metadata == {
        "author": "Ada Weir <ada@mill.org>",
        "to": "Ben Ferry",
        "date": "2024-02-03T04:05:06+00:00",
    }


def test_html_and_8_bit_texts_are_read_if_there_are_no_others() -> None:
    document = parse(
        {"__substg1.0_0037001E": "Größe".encode("cp1252"), "__substg1.0_10130102": b"<p>rich <b>words</b>"}
    )
    assert document.text == "Subject: Größe\n\nrich **words**\n"


def test_attachments_are_named_and_text_ones_are_sections() -> None:
    folder = "__attach_version1.0_#0000000"
    document = parse(
        MAIL
        | {
            f"{folder}0/__substg1.0_3707001F": wide("plan.pdf"),
            f"{folder}0/__substg1.0_37010102": b"%PDF-",
            f"{folder}1/__substg1.0_3707001F": wide("notes.txt"),
            f"{folder}1/__substg1.0_37010102": b"three wheels",
        }
    )
    assert document.text.endswith("Attachments:\n\n- plan.pdf\n- notes.txt\n\n# notes.txt\n\nthree wheels\n")
    assert [section.path for section in document.sections] == [("notes.txt",)]


def test_a_truncated_message_is_read_if_no_text_is_missing_or_fails_with_its_reason() -> None:
    body = compound(MAIL)
    read = {text for length in range(0, len(body), 64) if (text := read_in_part(body[:length]))}
    assert read == {parse(MAIL).text}


def read_in_part(body: bytes) -> str:
    """The text; empty if the body is refused."""
    try:
        return OutlookParser().parse("file:///a.msg", body).text
    except DocumentError as failed:
        assert failed.reason.startswith("damaged MSG: ")  # noqa: PT017
        return ""
