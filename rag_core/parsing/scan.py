"""Detection of content that is not for readers: programs, active content, hidden text, instructions to a model.

The patterns of text are in `scan_patterns.yaml`. The scan cannot distinguish an attack from a text about attacks. So a
quarantined document waits for a person to decide.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from html import unescape
from importlib.resources import files
from itertools import islice
from typing import Literal, TypeAlias

import yaml

from rag_core.cpu_limit import check_cpu
from rag_core.errors import DocumentError
from rag_core.parsing.archive import open_archive
from rag_core.parsing.compression import decompress
from rag_core.parsing.detection import suffix_of
from rag_core.parsing.launch_actions import starts_program
from rag_core.types import Document

VERSION = 3

Severity: TypeAlias = Literal["flag", "quarantine"]

_QUARANTINE_WEIGHT = 3
_HIDDEN_TEXT_WEIGHT = 2

# A program with one of these suffixes is disguised
_DOCUMENT_SUFFIXES = frozenset(
    (
        *(".txt", ".text", ".log", ".md", ".markdown", ".rst", ".html", ".htm", ".xhtml", ".pdf", ".rtf", ".epub"),
        *(".doc", ".docx", ".xls", ".xlsx", ".ppt", ".pptx", ".odt", ".ods", ".odp", ".csv", ".tsv", ".json", ".xml"),
        *(".ipynb", ".vtt", ".srt"),
        *(".rss", ".atom", ".opml", ".eml", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff"),
    )
)
_MACH_O_MAGICS = (b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe")
_ZIP_MAGIC, _OLE_MAGIC = b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MACRO_PROJECT = "_VBA_PROJECT".encode("utf-16-le")
_MACRO_FREE_SUFFIXES = (".docx", ".xlsx", ".pptx", ".dotx", ".xltx", ".potx")
_PROGRAM_SUFFIXES = (".exe", ".dll", ".scr", ".com", ".bat", ".cmd", ".ps1", ".vbs", ".hta", ".msi", ".lnk", ".jar")
_ARCHIVE_SUFFIXES = (".zip", ".7z", ".rar", ".gz", ".tar", ".cab", ".iso")


def _pdf_name(name: str) -> bytes:
    """A pattern for a name in a PDF. Any letter of it can be written as its code: /L#61unch."""
    return b"/" + b"".join(b"(?:%c|(?i:#%02x))" % (letter, letter) for letter in name.encode()) + rb"(?![\w#])"


_LAUNCH = re.compile(_pdf_name("S") + rb"[\s\0]*" + _pdf_name("Launch"))
_JAVASCRIPT = re.compile(
    rb"%(s)b[\s\0]*%(javascript)b|%(js)b[\s\0]*(?:[(<]|\d+\s+\d+\s+R)"
    % {b"s": _pdf_name("S"), b"javascript": _pdf_name("JavaScript"), b"js": _pdf_name("JS")}
)
_ATTACHMENT = re.compile(_pdf_name("EmbeddedFile") + b"|" + _pdf_name("EmbeddedFiles"))
_OBJECT_STREAM = re.compile(_pdf_name("Type") + rb"[\s\0]*" + _pdf_name("ObjStm") + rb"[^\0]{0,500}?stream\r?\n")
_MAX_OBJECT_BYTES, _MAX_OBJECT_STREAMS = 32_000_000, 1_000

_ACTIVE_ELEMENT = re.compile(rb"<(iframe|object|embed)[\s>/]")
_SCRIPT_LINK = re.compile(rb"""=\s*+["']?\s*+javascript:(?!\s*(?:;|void|false|//|["']))""")
_STYLE = re.compile(rb"""style\s{0,9}=\s{0,9}("[^"<>]{0,1000}"|'[^'<>]{0,1000}')""")
_TAG_START = re.compile(rb"<([a-z][a-z0-9]{0,20})\s[^<>]*\Z")
_HIDING_STYLE = re.compile(
    rb"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?:\.0*)?(?:px|pt|em|rem|%)?\s*(?:[;!]|\Z)"
    rb"|opacity\s*:\s*0(?:\.0*)?\s*(?:[;!]|\Z)"
)
_WHITE = rb"\s*:\s*(?:#fff(?:fff)?\b|white\b|rgba?\(\s*255\s*,\s*255\s*,\s*255\b)"
_WHITE_TEXT = re.compile(rb"(?<![\w-])color" + _WHITE)
_WHITE_BACKGROUND = re.compile(rb"(?<![\w-])background(?:-color)?" + _WHITE)
_HTML_TAG = re.compile(r"<[^<>]*>")
_MIN_HIDDEN_CHARS = 150
_MAX_TAG_BYTES, _MAX_ELEMENT_BYTES, _MAX_ELEMENTS = 1_000, 20_000, 1_000
_COMPARED_CHARS = 40
"""The start of a hidden text, by which it is found in the document."""

_INVISIBLE = "\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064\ufeff"
_INVISIBLE_RUN = re.compile(f"[{_INVISIBLE}]{{6,}}")
_INVISIBLE_IN_WORD = re.compile(f"(?<=[A-Za-z])[\u00ad{_INVISIBLE}]+(?=[A-Za-z])")
_DIRECTION_OVERRIDES = "\u202d\u202e"
# After a black flag they spell the flag of a region
_TAG_CHARACTERS = re.compile("(?<!\U0001f3f4)(?<![\U000e0020-\U000e007f])[\U000e0020-\U000e007f]{4,}")
_TAG_CHARACTER_BYTES = b"\xf3\xa0"

_MAX_OCCURRENCES = 20_000
"""The occurrences of a start word that are tried: a text that repeats one word must not take minutes."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of the scan. `flag` is its kind, short and stable; `reason` describes it for a person."""

    flag: str
    severity: Severity
    reason: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """A phrase: one of `starts`, then `continuation`. The text must contain one of `needs` if there are any."""

    name: str
    weight: int
    starts: tuple[str, ...]
    needs: tuple[str, ...]
    continuation: re.Pattern[str]

    def matches(self, lower: str) -> bool:
        check_cpu()
        if self.needs and not any(map(lower.__contains__, self.needs)):
            return False
        for start in self.starts:
            begins_with_letter, position = start[0].isalpha(), lower.find(start)
            for _ in range(_MAX_OCCURRENCES):
                if position < 0:
                    break
                continues_word = begins_with_letter and position and lower[position - 1].isalnum()
                if not continues_word and self.continuation.match(lower, position + len(start)):
                    return True
                position = lower.find(start, position + 1)
        return False


Scanner: TypeAlias = Callable[[str, bytes, Document | None], list[Finding]]


def skip_scan(_uri: str, _body: bytes, _document: Document | None) -> list[Finding]:
    return []


def scan(uri: str, body: bytes, document: Document | None, file_mb: float = 200.0) -> list[Finding]:
    """The findings, those for quarantine first. If no document could be parsed, only disguised programs are found."""
    suffix = suffix_of(uri)
    findings: list[Finding] = []
    if suffix in _DOCUMENT_SUFFIXES and (program := _program_kind(body)):
        severity: Severity = "flag" if program == "a script" else "quarantine"
        findings.append(Finding("executable", severity, f"{program} named {suffix}"))
    if document is not None:
        stored_uri, content = decompress(uri, body, file_mb)
        if document.media_type == "application/pdf":
            findings += _scan_pdf(content)
        elif content.startswith(_ZIP_MAGIC):
            findings += _scan_archive(suffix_of(stored_uri), content)
        elif content.startswith(_OLE_MAGIC) and _MACRO_PROJECT in content:
            findings.append(Finding("macros", "flag", "macros (a VBA project)"))
        findings += _scan_text(document)
        if document.media_type == "text/html":
            findings += _scan_html(content.lower(), document)
    return sorted(findings, key=lambda finding: finding.severity == "flag")


def scan_without_quarantine(uri: str, body: bytes, document: Document | None, file_mb: float = 200.0) -> list[Finding]:
    """The findings of `scan`, all of them as flags."""
    return [replace(finding, severity="flag") for finding in scan(uri, body, document, file_mb)]


def quarantine_reason(findings: Sequence[Finding]) -> str:
    """The reasons for quarantine; empty if there are none."""
    return "; ".join(finding.reason for finding in findings if finding.severity == "quarantine")


def _program_kind(body: bytes) -> str:
    """The kind of program that the body is; empty if it is not a program."""
    if body.startswith(b"\x7fELF"):
        return "a Linux program"
    if body.startswith(b"MZ"):
        header = int.from_bytes(body[60:64], "little")
        if body[header : header + 4] == b"PE\0\0":
            return "a Windows program"
    if body.startswith(_MACH_O_MAGICS):
        return "a macOS program"
    return "a script" if body.startswith((b"#!/", b"#! /")) else ""


def _scan_archive(suffix: str, body: bytes) -> Iterator[Finding]:
    try:
        names = open_archive(body).names
    except DocumentError:
        return
    for name in names:
        lower = name.lower()
        if lower.endswith("vbaproject.bin") and suffix in _MACRO_FREE_SUFFIXES:
            yield Finding("macros", "quarantine", f"macros in a {suffix}, which must not have any")
        elif lower.endswith("vbaproject.bin"):
            yield Finding("macros", "flag", f"macros ({name})")
        elif lower.endswith(_PROGRAM_SUFFIXES):
            yield Finding("executable", "quarantine", f"a program inside: {name:.200}")
        elif lower.endswith(_ARCHIVE_SUFFIXES):
            yield Finding("nested-archive", "flag", f"an archive inside: {name:.200}")


def _scan_pdf(body: bytes) -> Iterator[Finding]:
    """Scans the PDF and the streams in which newer PDFs keep their dictionaries, up to _MAX_OBJECT_BYTES in total."""
    parts, bytes_left = [body], _MAX_OBJECT_BYTES
    for match in islice(_OBJECT_STREAM.finditer(body), _MAX_OBJECT_STREAMS):
        check_cpu()
        with suppress(zlib.error):
            parts.append(zlib.decompressobj().decompress(memoryview(body)[match.end() :], bytes_left))
            bytes_left -= len(parts[-1])
        if bytes_left <= 0:
            break
    if any(
        starts_program(part, *match.span(), _DOCUMENT_SUFFIXES) for part in parts for match in _LAUNCH.finditer(part)
    ):
        yield Finding("active-content", "quarantine", "a PDF action that starts a program (/Launch)")
    if any(_JAVASCRIPT.search(part) for part in parts):
        yield Finding("active-content", "flag", "JavaScript in a PDF")
    if any(_ATTACHMENT.search(part) for part in parts):
        yield Finding("embedded-file", "flag", "a file attached to a PDF")


def _scan_text(document: Document) -> Iterator[Finding]:
    text = f"{document.title}\n{document.text}"
    if not text.isascii():
        # faster than a search for 96 characters
        has_tags = _TAG_CHARACTER_BYTES in text.encode("utf-8", "surrogatepass")
        if has_tags and (match := _TAG_CHARACTERS.search(text)):
            secret = "".join(chr(ord(character) - 0xE0000) for character in match[0])
            yield Finding("hidden-text", "quarantine", f"text in invisible tag characters: {secret[:80]!r}")
        if _contains_any(text, _INVISIBLE) and _INVISIBLE_RUN.search(text):
            yield Finding("hidden-text", "flag", "a run of invisible characters")
        if _contains_any(text, _DIRECTION_OVERRIDES):
            yield Finding("hidden-text", "flag", "characters that reverse the direction of text")
        if _contains_any(text, "\u00ad" + _INVISIBLE):
            text = _INVISIBLE_IN_WORD.sub("", text)
    yield from _scan_for_instructions(text, hidden=False)


def _contains_any(text: str, characters: str) -> bool:
    return any(character in text for character in characters)


def _scan_for_instructions(text: str, hidden: bool) -> Iterator[Finding]:
    lower = text.lower()
    matching = [pattern for pattern in _load_patterns() if pattern.matches(lower)]
    if matching:
        weight = sum(pattern.weight for pattern in matching) + (_HIDDEN_TEXT_WEIGHT if hidden else 0)
        severity: Severity = "quarantine" if weight >= _QUARANTINE_WEIGHT else "flag"
        subject = "hidden text" if hidden else "text"
        names = ", ".join(pattern.name for pattern in matching)
        yield Finding("prompt-injection", severity, f"{subject} that {names}")


def _scan_html(page: bytes, document: Document) -> Iterator[Finding]:
    """`page` is in lower case."""
    if active := sorted({match[1].decode() for match in _ACTIVE_ELEMENT.finditer(page)}):
        yield Finding("active-content", "flag", f"HTML with <{'>, <'.join(active)}>")
    if b"javascript:" in page and _SCRIPT_LINK.search(page):
        yield Finding("active-content", "flag", "a link that runs a script (javascript:)")
    if b"style" not in page:
        return
    hiding = (
        match
        for match in _STYLE.finditer(page)
        if _HIDING_STYLE.search(style := match[1][1:-1])
        or (_WHITE_TEXT.search(style) and _WHITE_BACKGROUND.search(style))
    )
    hidden = [text for match in islice(hiding, _MAX_ELEMENTS) if (text := _read_element(page, match))]
    if not hidden:
        return
    # only elements whose text is a part of the document: text that the parser left out is harmless
    document_text = _strip_all_space(document.text.lower())
    indexed = [text for text in hidden if _strip_all_space(text)[:_COMPARED_CHARS] in document_text]
    if any(len(text) >= _MIN_HIDDEN_CHARS for text in indexed):
        yield Finding("hidden-text", "flag", f"text that the page does not show: {max(indexed, key=len)[:80]!r}")
    yield from _scan_for_instructions("\n".join(indexed), hidden=True)


def _read_element(page: bytes, style: re.Match[bytes]) -> str:
    """The text of the element with that style, up to the next end tag of the same name."""
    check_cpu()
    tag = _TAG_START.search(page, max(0, style.start() - _MAX_TAG_BYTES), style.start())
    start = page.find(b">", style.end(), style.end() + _MAX_TAG_BYTES) + 1
    if not tag or not start:
        return ""
    end = page.find(b"</" + tag[1], start, start + _MAX_ELEMENT_BYTES)
    content = page[start : end if end >= 0 else start + _MAX_ELEMENT_BYTES]
    return " ".join(unescape(_HTML_TAG.sub(" ", content.decode("utf-8", "replace"))).split())


def _strip_all_space(text: str) -> str:
    return "".join(text.split())


@cache
def _load_patterns() -> tuple[Pattern, ...]:
    rows = yaml.safe_load((files("rag_core.parsing") / "scan_patterns.yaml").read_text("utf-8"))
    return tuple(
        Pattern(
            row["name"],
            row["weight"],
            tuple(row["starts"]),
            tuple(row.get("with", ())),
            re.compile(row["pattern"], re.MULTILINE),
        )
        for row in rows
    )
