"""Mailboxes in the mbox format. Each mail is a member; its name is its Message-ID, so a new mail renames no other."""

import re
from collections.abc import Iterator

from rag_core.ingestion.containers.container import Budget
from rag_core.ingestion.containers.source_file import BLOCK_BYTES, SourceFile
from rag_core.ingestion.containers.spans import Span, SpanContainer, hash_bytes

_SEPARATOR = re.compile(rb"From .*\d\d?:\d\d.*\d{4}")
"""The line before each mail but the first: `From ann@example.com Mon Jul 11 12:08:34 2022`, after an empty line."""
_QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)
_MESSAGE_ID = re.compile(rb"^message-id:\s*<?([^\s<>]{1,200})", re.IGNORECASE | re.MULTILINE)
_UNSAFE = re.compile(r"[^\w.@+=$-]", re.ASCII)
_MAX_HEADER_BYTES = 1 << 16


def open_mailbox(file: SourceFile, budget: Budget) -> SpanContainer | None:
    """None if it is not a mailbox. Raises DocumentError if it is too large."""
    if file.read(5) != b"From ":
        return None
    file.seek(0)
    return SpanContainer(file, _number_copies(_read_mails(file, budget)), _unquote)


def _read_mails(file: SourceFile, budget: Budget) -> Iterator[Span]:
    """Yields the mails without their separators. Content-Length is not trusted: after an edit it is wrong."""
    start, position, starts_line, is_after_blank = 0, 0, True, True
    digest, headers = hash_bytes(), bytearray()
    while line := file.readline(BLOCK_BYTES):
        position += len(line)
        if not start or (starts_line and is_after_blank and _SEPARATOR.match(line)):
            if start:
                yield _mail_span(start, position - len(line), digest.hexdigest(), headers)
            budget.spend_member()
            start, digest, headers = position, hash_bytes(), bytearray()
        else:
            digest.update(line)
            if len(headers) < _MAX_HEADER_BYTES and not headers.endswith(b"\n\n"):
                headers += line.replace(b"\r\n", b"\n")
        is_after_blank = starts_line and line in (b"\n", b"\r\n")
        starts_line = line.endswith(b"\n")
    if start:
        yield _mail_span(start, position, digest.hexdigest(), headers)


def _mail_span(start: int, end: int, digest: str, headers: bytearray) -> Span:
    match = _MESSAGE_ID.search(headers.partition(b"\n\n")[0])
    name = _UNSAFE.sub("_", match[1].decode("ascii", "replace")) if match else digest
    return Span(f"{name}.eml", start, end - start, digest)


def _number_copies(mails: Iterator[Span]) -> Iterator[Span]:
    """Yields the mails with distinct names. Different mails with the same Message-ID all remain."""
    names: dict[str, set[str]] = {}
    for mail in mails:
        digests = names.setdefault(mail.name, set())
        if digests and mail.etag not in digests:
            yield Span(f"{mail.name.removesuffix('.eml')}-{mail.etag[:16]}.eml", mail.start, mail.size, mail.etag)
        else:
            yield mail
        digests.add(mail.etag)


def _unquote(mail: bytes) -> bytes:
    """Removes one `>` before each quoted `From ` at the beginning of a line."""
    return _QUOTED.sub(rb"\1", mail)
