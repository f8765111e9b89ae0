"""Outlook's MSG [MS-OXMSG]: a mail as properties in an OLE2 compound file. Only properties that make text are read."""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO

from olefile import OleFileIO

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import clean_text
from rag_core.parsing.encoding import decode_text
from rag_core.parsing.plain.mail import Mail, document_from_mail, text_from_html
from rag_core.types import Document

VERSION = 1

# Property ids of [MS-OXPROPS], and the types with which the name of a stream ends
_SUBJECT, _BODY, _HTML, _TO, _CC = "0037", "1000", "1013", "0E04", "0E03"
_FROM_NAME, _FROM_SMTP, _FROM_ADDRESS = "0C1A", "5D01", "0C1F"
_LONG_FILE_NAME, _FILE_NAME, _FILE, _FILE_TYPE = "3707", "3704", "3701", "370E"
_SUBMITTED, _DELIVERED = 0x0039, 0x0E06
_UNICODE, _EIGHT_BIT, _BINARY = "001F", "001E", "0102"
_PROPERTIES = "__properties_version1.0"
_PROPERTIES_HEADER_BYTES = 32
_TIME_TYPE = 0x0040
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_ATTACHMENT_PREFIX = "__attach_version1.0_#"
_TEXT_SUFFIXES = (".txt", ".md", ".csv", ".html")
_MAX_ATTACHMENTS = 1000
_IS_STREAM = 2  # olefile's STGTY_STREAM
# What olefile raises on damaged files, besides its own OSError
_DAMAGES = (OSError, EOFError, struct.error, ValueError, LookupError, TypeError, AttributeError, RecursionError)


class OutlookParser:
    def parse(self, uri: str, body: bytes) -> Document:
        try:
            with OleFileIO(BytesIO(body)) as file:
                mail = _read_mail(_MessageFile(file))
        except _DAMAGES as error:
            raise DocumentError("parse", f"damaged MSG: {error}") from error
        return document_from_mail(uri, mail, "application/vnd.ms-outlook")


class _MessageFile:
    """The properties of a message and of its attachments. An attachment's properties are in a `folder` of the file."""

    def __init__(self, file: OleFileIO) -> None:
        self._file = file

    def body(self) -> str:
        plain = self.text(_BODY)
        if plain.strip():
            return plain
        html = self.stream(f"__substg1.0_{_HTML}{_BINARY}") or self.text(_HTML).encode("utf-8", "replace")
        return text_from_html(html) if html else ""

    def attachments(self) -> Iterator[tuple[str, str]]:
        """Yields the name of each attachment, and its text if it is a text file."""
        folders = sorted({path[0] for path in self._file.listdir() if path[0].startswith(_ATTACHMENT_PREFIX)})
        for folder in (f"{folder}/" for folder in folders[:_MAX_ATTACHMENTS]):
            name = self.line(_LONG_FILE_NAME, folder) or self.line(_FILE_NAME, folder) or "attachment"
            media_type = self.line(_FILE_TYPE, folder)
            is_text = media_type.startswith("text/") or (not media_type and name.lower().endswith(_TEXT_SUFFIXES))
            content = self.stream(f"{folder}__substg1.0_{_FILE}{_BINARY}") if is_text else b""
            is_html = media_type == "text/html" or name.lower().endswith((".html", ".htm"))
            yield name, text_from_html(content) if is_html and content else decode_text(content)

    def time(self) -> datetime | None:
        """The time of submission, else of delivery. The file counts units of 100 ns since 1601."""
        records = self.stream(_PROPERTIES)[_PROPERTIES_HEADER_BYTES:]
        complete = records[: len(records) // 16 * 16]
        times = {
            tag >> 16: ticks for tag, _, ticks in struct.iter_unpack("<IIQ", complete) if tag & 0xFFFF == _TIME_TYPE
        }
        ticks = times.get(_SUBMITTED) or times.get(_DELIVERED)
        try:
            return _EPOCH + timedelta(microseconds=ticks // 10) if ticks else None
        except OverflowError:
            return None

    def line(self, property_id: str, folder: str = "") -> str:
        return clean_text(" ".join(self.text(property_id, folder).split()))

    def text(self, property_id: str, folder: str = "") -> str:
        """A text property, from its stream in UTF-16 if that exists, else from the one in 8 bits."""
        wide = self.stream(f"{folder}__substg1.0_{property_id}{_UNICODE}")
        if wide:
            return wide.decode("utf-16-le", "replace").replace("\r\n", "\n").replace("\0", "")
        return decode_text(self.stream(f"{folder}__substg1.0_{property_id}{_EIGHT_BIT}"))

    def stream(self, path: str) -> bytes:
        """The content of a stream; empty if the file has none of this name."""
        if not self._file.exists(path) or self._file.get_type(path) != _IS_STREAM:
            return b""
        with self._file.openstream(path) as stream:
            return bytes(stream.read())


def _read_mail(message: _MessageFile) -> Mail:
    name, address = message.line(_FROM_NAME), message.line(_FROM_SMTP) or message.line(_FROM_ADDRESS)
    # Within Exchange the address is a directory path, not a mail address
    sender = f"{name} <{address}>".strip() if "@" in address and address != name else name or address
    sent = message.time()
    headers = {
        "From": sender,
        "To": message.line(_TO),
        "Cc": message.line(_CC),
        "Date": f"{sent:%Y-%m-%d %H:%M} UTC" if sent else "",
        "Subject": message.line(_SUBJECT),
    }
    return Mail(
        headers={name: value for name, value in headers.items() if value},
        sent=sent.isoformat(timespec="seconds") if sent else "",
        body=message.body(),
        attachments=tuple(message.attachments()),
    )
