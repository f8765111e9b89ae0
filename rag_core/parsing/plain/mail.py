"""Mail: what a reader of a message sees first, then its text, then its attachments."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from email import message_from_bytes, policy
from email.errors import MessageError
from email.message import MIMEPart
from email.utils import parsedate_to_datetime

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import Block, clean, heading, joined, listed, paragraph
from rag_core.parsing.encoding import decoded
from rag_core.parsing.markup.html import HtmlParser
from rag_core.parsing.outline import outlined
from rag_core.types import Document, Metadata

VERSION = 3

HEADERS = ("From", "To", "Cc", "Date", "Subject")
# Each part may open its own; a digest of a mailing list has hundreds, a bomb has more
_MOST_BOUNDARIES = 1000
# Every line is compared with every boundary that is open: some seconds
_MOST_COMPARISONS = 20_000_000
_DEEPEST = 3  # messages attached to messages
_FORWARDED = "message/rfc822"
_PARAGRAPHS = re.compile(r"\n[ \t]*\n+")
# What the standard library's parsers of addresses and parameters raise on strange headers
_CONTENT_TYPE = re.compile(rb"^content-type:", re.IGNORECASE | re.MULTILINE)
_STRANGE = (MessageError, ValueError, LookupError, AttributeError, TypeError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """`headers` are lines to show, `sent` is ISO 8601. Attachments are names, and their text where they are text."""

    headers: dict[str, str]
    sent: str
    body: str
    attachments: tuple[tuple[str, str], ...] = ()


class MailParser:
    """RFC 5322 with MIME; HTML is read where it is no other form of a plain text."""

    def parse(self, uri: str, body: bytes) -> Document:
        _refuse(body)
        try:
            return document_of(uri, _read(_message(body), 0), "message/rfc822")
        except RecursionError as error:
            raise DocumentError("parse", "damaged mail: parts nested too deep") from error


def _message(body: bytes) -> MIMEPart:
    """Where Python fails at a content type, the mail is plain text."""
    try:
        return message_from_bytes(body, policy=policy.default)
    except (LookupError, AttributeError, TypeError):
        return message_from_bytes(_CONTENT_TYPE.sub(rb"X-\g<0>", body), policy=policy.default)


def _refuse(body: bytes) -> None:
    boundaries = body.lower().count(b"boundary=")
    if boundaries > _MOST_BOUNDARIES:
        raise DocumentError("parse", f"too large: more than {_MOST_BOUNDARIES} multiparts in one mail")
    if boundaries * body.count(b"\n") > _MOST_COMPARISONS:
        raise DocumentError("parse", f"too large: {boundaries} multiparts in a mail of {len(body) / 1e6:.1f} MB")


def document_of(uri: str, mail: Mail, media_type: str) -> Document:
    text = joined(_blocks(mail))
    document = outlined(Document(uri=uri, text=text, media_type=media_type, metadata=_metadata(mail)))
    return replace(document, title=mail.headers.get("Subject", ""))


def _blocks(mail: Mail) -> Iterator[Block]:
    yield paragraph("\n".join(f"{name}: {value}" for name, value in mail.headers.items()))
    for part in _PARAGRAPHS.split(mail.body):
        yield paragraph(part)
    if mail.attachments:
        yield paragraph("Attachments:")
        yield from (listed(name) for name, _ in mail.attachments)
    for name, text in mail.attachments:
        if text.strip():
            yield heading(1, name)
            yield from (paragraph(part) for part in _PARAGRAPHS.split(text))


def _metadata(mail: Mail) -> Metadata:
    named = {
        "author": mail.headers.get("From", "").replace(";", ","),
        "to": mail.headers.get("To", ""),
        "date": mail.sent,
    }
    return {key: value for key, value in named.items() if value}


def _read(message: MIMEPart, depth: int) -> Mail:
    headers = {name: text for name in HEADERS if (text := _header(message, name))}
    body = "\n\n".join(_texts(message))
    attachments = tuple(_attachment(part, depth) for part in _leaves(message) if _is_attached(part))
    return Mail(headers=headers, sent=_sent(headers.get("Date", "")), body=body, attachments=attachments)


def _header(message: MIMEPart, name: str) -> str:
    try:
        return _one_line(str(message.get(name, "")))
    except _STRANGE:
        return _one_line(next((str(value) for key, value in message.raw_items() if key.lower() == name.lower()), ""))


def _one_line(raw: str) -> str:
    """Bytes outside ASCII come as surrogates, and are mostly UTF-8."""
    try:
        text = raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        text = raw
    return clean(" ".join(text.split()))


def _sent(date: str) -> str:
    try:
        return parsedate_to_datetime(date).isoformat()
    except (ValueError, TypeError, OverflowError):
        return ""


def _texts(message: MIMEPart) -> list[str]:
    """What a reader sees, in order; of a text that comes in several forms the plain one."""
    return [text for part in _leaves(message, _plain_form) if not _is_attached(part) and (text := _text(part)).strip()]


def _plain_form(parts: list[MIMEPart]) -> list[MIMEPart]:
    plain = [part for part in parts if part.get_content_type() == "text/plain" and not _is_attached(part)]
    return [part for part in plain if _text(part).strip()][:1] or parts


def _leaves(message: MIMEPart, chosen: Callable[[list[MIMEPart]], list[MIMEPart]] = list) -> Iterator[MIMEPart]:
    """The parts that have no parts; a message in the message is one. Of alternative ones those that are chosen."""
    open_parts: list[MIMEPart] = [message]
    while open_parts:
        part = open_parts.pop()
        if part.get_content_maintype() == "multipart" and part.is_multipart():
            parts = list(part.iter_parts())
            open_parts.extend(reversed(chosen(parts) if part.get_content_subtype() == "alternative" else parts))
        else:
            yield part


def _is_attached(part: MIMEPart) -> bool:
    is_text = part.get_content_type() in ("text/plain", "text/html")
    return not is_text or _disposition(part) == "attachment" or bool(_filename(part))


def _disposition(part: MIMEPart) -> str:
    try:
        return part.get_content_disposition() or ""
    except _STRANGE:
        return ""


def _filename(part: MIMEPart) -> str:
    try:
        return _one_line(part.get_filename("") or "")
    except _STRANGE:
        return ""


def _attachment(part: MIMEPart, depth: int) -> tuple[str, str]:
    name = _filename(part) or part.get_content_type()
    if part.get_content_type() == _FORWARDED and part.is_multipart():
        inner = next(iter(part.iter_parts()), None)
        return _forwarded(inner, depth + 1) if isinstance(inner, MIMEPart) else (name, "")
    return name, _text(part) if part.get_content_maintype() == "text" else ""


def _forwarded(message: MIMEPart, depth: int) -> tuple[str, str]:
    name = _header(message, "Subject") or _FORWARDED
    return name, _plain(_read(message, depth)) if depth <= _DEEPEST else ""


def _plain(mail: Mail) -> str:
    headers = "\n".join(f"{name}: {value}" for name, value in mail.headers.items())
    return "\n\n".join((headers, mail.body, *(f"{name}\n\n{text}" for name, text in mail.attachments)))


def _text(part: MIMEPart) -> str:
    try:
        body, charset = part.get_payload(decode=True), part.get_content_charset("")
    except _STRANGE:
        return ""
    if not isinstance(body, bytes):
        return ""
    return html_text(body, charset) if part.get_content_type() == "text/html" else decoded(body, charset)


def html_text(body: bytes, charset: str = "") -> str:
    return HtmlParser().parse("", body, charset).text
