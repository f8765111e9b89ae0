"""Outlook's MSG [MS-OXMSG]: a mail as properties in an OLE2 compound file. Only those are read that make text."""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO

from olefile import OleFileIO

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import clean
from rag_core.parsing.encoding import decoded
from rag_core.parsing.plain.mail import Mail, document_of, html_text
from rag_core.types import Document

VERSION = 1

# Property ids of [MS-OXPROPS], and the types that end a stream's name
_SUBJECT, _BODY, _HTML, _TO, _CC = "0037", "1000", "1013", "0E04", "0E03"
_FROM_NAME, _FROM_SMTP, _FROM_ADDRESS = "0C1A", "5D01", "0C1F"
_FILE_NAME, _SHORT_NAME, _FILE, _FILE_TYPE = "3707", "3704", "3701", "370E"
_SUBMITTED, _DELIVERED = 0x0039, 0x0E06
_UNICODE, _EIGHT_BIT, _BINARY = "001F", "001E", "0102"
_PROPERTIES = "__properties_version1.0"
_TIME = 0x0040
_HEAD_OF_PROPERTIES = 32
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_MOST_ATTACHMENTS = 1000
_IS_STREAM = 2  # olefile's STGTY_STREAM
# What olefile raises on damaged files, beside its own OSError
_DAMAGES = (OSError, EOFError, struct.error, ValueError, LookupError, TypeError, AttributeError, RecursionError)


class OutlookParser:
    def parse(self, uri: str, body: bytes) -> Document:
        try:
            with OleFileIO(BytesIO(body)) as file:
                mail = _Message(file).mail()
        except _DAMAGES as error:
            raise DocumentError("parse", f"damaged MSG: {error}") from error
        return document_of(uri, mail, "application/vnd.ms-outlook")


class _Message:
    def __init__(self, file: OleFileIO) -> None:
        self._file = file

    def mail(self) -> Mail:
        sent = self._sent()
        headers = {
            "From": self._sender(),
            "To": self._line(_TO),
            "Cc": self._line(_CC),
            "Date": f"{sent:%Y-%m-%d %H:%M} UTC" if sent else "",
            "Subject": self._line(_SUBJECT),
        }
        return Mail(
            headers={name: value for name, value in headers.items() if value},
            sent=sent.isoformat(timespec="seconds") if sent else "",
            body=self._body(),
            attachments=tuple(self._attachments()),
        )

    def _sender(self) -> str:
        name, address = self._line(_FROM_NAME), self._line(_FROM_SMTP) or self._line(_FROM_ADDRESS)
        # within Exchange the address is a directory path
        return f"{name} <{address}>".strip() if "@" in address and address != name else name or address

    def _body(self) -> str:
        plain = self._text(_BODY)
        if plain.strip():
            return plain
        html = self._stream(f"__substg1.0_{_HTML}{_BINARY}") or self._text(_HTML).encode("utf-8", "replace")
        return html_text(html) if html else ""

    def _attachments(self) -> Iterator[tuple[str, str]]:
        folders = sorted({path[0] for path in self._file.listdir() if path[0].startswith("__attach_version1.0_#")})
        for folder in folders[:_MOST_ATTACHMENTS]:
            name = self._line(_FILE_NAME, f"{folder}/") or self._line(_SHORT_NAME, f"{folder}/") or "attachment"
            kind = self._line(_FILE_TYPE, f"{folder}/")
            is_text = kind.startswith("text/") or (not kind and name.lower().endswith((".txt", ".md", ".csv", ".html")))
            content = self._stream(f"{folder}/__substg1.0_{_FILE}{_BINARY}") if is_text else b""
            is_html = kind == "text/html" or name.lower().endswith((".html", ".htm"))
            yield name, html_text(content) if is_html and content else decoded(content)

    def _sent(self) -> datetime | None:
        """When it was submitted, else when it was delivered: 100 ns since 1601."""
        stream = self._stream(_PROPERTIES)
        times = {
            tag >> 16: ticks
            for tag, _, ticks in struct.iter_unpack("<IIQ", _whole(stream[_HEAD_OF_PROPERTIES:], 16))
            if tag & 0xFFFF == _TIME
        }
        ticks = times.get(_SUBMITTED) or times.get(_DELIVERED)
        try:
            return _EPOCH + timedelta(microseconds=ticks // 10) if ticks else None
        except OverflowError:
            return None

    def _line(self, property_id: str, folder: str = "") -> str:
        return clean(" ".join(self._text(property_id, folder).split()))

    def _text(self, property_id: str, folder: str = "") -> str:
        wide = self._stream(f"{folder}__substg1.0_{property_id}{_UNICODE}")
        if wide:
            return wide.decode("utf-16-le", "replace").replace("\r\n", "\n").replace("\0", "")
        return decoded(self._stream(f"{folder}__substg1.0_{property_id}{_EIGHT_BIT}"))

    def _stream(self, path: str) -> bytes:
        if not self._file.exists(path) or self._file.get_type(path) != _IS_STREAM:
            return b""
        with self._file.openstream(path) as stream:
            return bytes(stream.read())


def _whole(content: bytes, size: int) -> bytes:
    return content[: len(content) // size * size]
