"""Mail: the headers that a reader sees, then the text, then the attachments."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from email import message_from_bytes, policy
from email.errors import MessageError
from email.message import MIMEPart
from email.utils import parsedate_to_datetime

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import Block, clean_text, heading, join_blocks, list_item, paragraph
from rag_core.parsing.encoding import decode_text
from rag_core.parsing.markup.html import HtmlParser
from rag_core.parsing.outline import with_outline
from rag_core.types import Document

VERSION = 3

HEADERS = ("From", "To", "Cc", "Date", "Subject")
# Each part can declare a boundary; a mailing list's digest has hundreds, a bomb has more
_MAX_BOUNDARIES = 1000
# Every line is compared with every open boundary: this many take some seconds
_MAX_COMPARISONS = 20_000_000
_MAX_DEPTH = 3  # messages attached to messages
_FORWARDED = "message/rfc822"
_BLANK_LINES = re.compile(r"\n[ \t]*\n+")
_CONTENT_TYPE = re.compile(rb"^content-type:", re.IGNORECASE | re.MULTILINE)
# The errors that the standard library's parsers of addresses and parameters raise for malformed headers
_HEADER_ERRORS = (MessageError, ValueError, LookupError, AttributeError, TypeError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """`headers` are the lines to show; `sent` is in ISO 8601. `attachments` are pairs of a name and a text.

    The text of an attachment that is not text is empty.
    """

    headers: dict[str, str]
    sent: str
    body: str
    attachments: tuple[tuple[str, str], ...] = ()


class MailParser:
    """Parses RFC 5322 with MIME. HTML is read unless the same part also exists as plain text."""

    def parse(self, uri: str, body: bytes) -> Document:
        boundaries = body.lower().count(b"boundary=")
        if boundaries > _MAX_BOUNDARIES:
            raise DocumentError("parse", f"too large: more than {_MAX_BOUNDARIES} multiparts in one mail")
        if boundaries * body.count(b"\n") > _MAX_COMPARISONS:
            raise DocumentError("parse", f"too large: {boundaries} multiparts in a mail of {len(body) / 1e6:.1f} MB")
        try:
            try:
                message = message_from_bytes(body, policy=policy.default)
            except (LookupError, AttributeError, TypeError):  # Python fails at a content type: read it as plain text
                message = message_from_bytes(_CONTENT_TYPE.sub(rb"X-\g<0>", body), policy=policy.default)
            return document_from_mail(uri, _read_mail(message, 0), "message/rfc822")
        except RecursionError as error:
            raise DocumentError("parse", "damaged mail: parts nested too deep") from error


def document_from_mail(uri: str, mail: Mail, media_type: str) -> Document:
    metadata = {
        "author": mail.headers.get("From", "").replace(";", ","),
        "to": mail.headers.get("To", ""),
        "date": mail.sent,
    }
    document = with_outline(
        Document(
            uri=uri,
            text=join_blocks(_mail_blocks(mail)),
            media_type=media_type,
            metadata={key: value for key, value in metadata.items() if value},
        )
    )
    return replace(document, title=mail.headers.get("Subject", ""))


def _mail_blocks(mail: Mail) -> Iterator[Block]:
    yield paragraph(_header_lines(mail))
    for part in _BLANK_LINES.split(mail.body):
        yield paragraph(part)
    if mail.attachments:
        yield paragraph("Attachments:")
        yield from (list_item(name) for name, _ in mail.attachments)
    for name, text in mail.attachments:
        if text.strip():
            yield heading(1, name)
            yield from (paragraph(part) for part in _BLANK_LINES.split(text))


def _header_lines(mail: Mail) -> str:
    return "\n".join(f"{name}: {value}" for name, value in mail.headers.items())


def _read_mail(message: MIMEPart, depth: int) -> Mail:
    """`depth` counts the messages around this one."""
    headers = {name: text for name in HEADERS if (text := _read_header(message, name))}
    try:
        sent = parsedate_to_datetime(headers.get("Date", "")).isoformat()
    except (ValueError, TypeError, OverflowError):
        sent = ""
    shown_parts = [part for part in _leaf_parts(message, _prefer_plain_text) if not _is_attachment(part)]
    texts = [text for part in shown_parts if (text := _part_text(part)).strip()]
    attachments = tuple(_read_attachment(part, depth) for part in _leaf_parts(message) if _is_attachment(part))
    return Mail(headers=headers, sent=sent, body="\n\n".join(texts), attachments=attachments)


def _read_header(message: MIMEPart, name: str) -> str:
    try:
        return _clean_header(str(message.get(name, "")))
    except _HEADER_ERRORS:
        return _clean_header(
            next((str(value) for key, value in message.raw_items() if key.lower() == name.lower()), "")
        )


def _clean_header(raw: str) -> str:
    """Bytes outside ASCII arrive as surrogates; most of them are UTF-8."""
    try:
        text = raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        text = raw
    return clean_text(" ".join(text.split()))


def _prefer_plain_text(parts: list[MIMEPart]) -> list[MIMEPart]:
    """The first plain text that is not blank; all parts if there is none."""
    plain = [part for part in parts if part.get_content_type() == "text/plain" and not _is_attachment(part)]
    return [part for part in plain if _part_text(part).strip()][:1] or parts


def _leaf_parts(message: MIMEPart, choose: Callable[[list[MIMEPart]], list[MIMEPart]] = list) -> Iterator[MIMEPart]:
    """The parts without inner parts, in order; an attached message is one. `choose` selects from alternatives."""
    open_parts: list[MIMEPart] = [message]
    while open_parts:
        part = open_parts.pop()
        if part.get_content_maintype() == "multipart" and part.is_multipart():
            parts = list(part.iter_parts())
            open_parts.extend(reversed(choose(parts) if part.get_content_subtype() == "alternative" else parts))
        else:
            yield part


def _is_attachment(part: MIMEPart) -> bool:
    if part.get_content_type() not in ("text/plain", "text/html"):
        return True
    try:
        disposition = part.get_content_disposition()
    except _HEADER_ERRORS:
        disposition = None
    return disposition == "attachment" or bool(_file_name(part))


def _file_name(part: MIMEPart) -> str:
    try:
        return _clean_header(part.get_filename("") or "")
    except _HEADER_ERRORS:
        return ""


def _read_attachment(part: MIMEPart, depth: int) -> tuple[str, str]:
    """The attachment's name and text. An attached message is read up to a depth of _MAX_DEPTH."""
    name = _file_name(part) or part.get_content_type()
    if part.get_content_type() != _FORWARDED or not part.is_multipart():
        return name, _part_text(part) if part.get_content_maintype() == "text" else ""
    message = next(iter(part.iter_parts()), None)
    if not isinstance(message, MIMEPart):
        return name, ""
    subject = _read_header(message, "Subject") or _FORWARDED
    if depth >= _MAX_DEPTH:
        return subject, ""
    mail = _read_mail(message, depth + 1)
    attachments = [f"{name}\n\n{text}" for name, text in mail.attachments]
    return subject, "\n\n".join([_header_lines(mail), mail.body, *attachments])


def _part_text(part: MIMEPart) -> str:
    try:
        body, charset = part.get_payload(decode=True), part.get_content_charset("")
    except _HEADER_ERRORS:
        return ""
    if not isinstance(body, bytes):
        return ""
    return text_from_html(body, charset) if part.get_content_type() == "text/html" else decode_text(body, charset)


def text_from_html(body: bytes, charset: str = "") -> str:
    return HtmlParser().parse("", body, charset).text
