"""What a document holds that is no text for people: programs, active content, hidden text, orders to a model.

The patterns of text stand in `scan_patterns.yaml`. Nothing here can tell an attack from a text about attacks: what is
quarantined waits for someone who can.
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

from rag_core.errors import DocumentError
from rag_core.parsing import archive
from rag_core.parsing.compression import decompressed, inner
from rag_core.parsing.detection import suffix_of
from rag_core.types import Document

VERSION = 2

Severity: TypeAlias = Literal["flag", "quarantine"]

FLAGS = "flags"
"""The metadata key that holds them."""

_ENOUGH = 3
_HIDDEN_WEIGHT = 2

# For a file so named, being a program is a disguise
_DOCUMENTS = frozenset(
    (
        *(".txt", ".text", ".log", ".md", ".markdown", ".rst", ".html", ".htm", ".xhtml", ".pdf", ".rtf", ".epub"),
        *(".doc", ".docx", ".xls", ".xlsx", ".ppt", ".pptx", ".odt", ".ods", ".odp", ".csv", ".tsv", ".json", ".xml"),
        *(".eml", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff"),
    )
)
_MACH_O = (b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe")
_ZIP, _OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MACRO_PROJECT = "_VBA_PROJECT".encode("utf-16-le")
_WITHOUT_MACROS = (".docx", ".xlsx", ".pptx", ".dotx", ".xltx", ".potx")
_PROGRAMS = (".exe", ".dll", ".scr", ".com", ".bat", ".cmd", ".ps1", ".vbs", ".hta", ".msi", ".lnk", ".jar")
_ARCHIVES = (".zip", ".7z", ".rar", ".gz", ".tar", ".cab", ".iso")


def _pdf_name(name: str) -> bytes:
    """A pattern for a name of a PDF, any letter of which may be told by its code: /L#61unch."""
    return b"/" + b"".join(b"(?:%c|(?i:#%02x))" % (letter, letter) for letter in name.encode()) + rb"(?![\w#])"


_LAUNCH = re.compile(_pdf_name("S") + rb"[\s\0]*" + _pdf_name("Launch"))
_JAVASCRIPT = re.compile(
    rb"%(s)b[\s\0]*%(javascript)b|%(js)b[\s\0]*(?:[(<]|\d+\s+\d+\s+R)"
    % {b"s": _pdf_name("S"), b"javascript": _pdf_name("JavaScript"), b"js": _pdf_name("JS")}
)
_ATTACHMENT = re.compile(_pdf_name("EmbeddedFile") + b"|" + _pdf_name("EmbeddedFiles"))
_OBJECT_STREAM = re.compile(_pdf_name("Type") + rb"[\s\0]*" + _pdf_name("ObjStm") + rb"[^\0]{0,500}?stream\r?\n")
_OBJECT_BYTES, _MOST_OBJECT_STREAMS = 32_000_000, 1_000

_ACTIVE = re.compile(rb"<(iframe|object|embed)[\s>/]")
_SCRIPT_LINK = re.compile(rb"""=\s*+["']?\s*+javascript:(?!\s*(?:;|void|false|//|["']))""")
_STYLE = re.compile(rb"""style\s{0,9}=\s{0,9}("[^"<>]{0,1000}"|'[^'<>]{0,1000}')""")
_OPENING = re.compile(rb"<([a-z][a-z0-9]{0,20})\s[^<>]*\Z")
_UNSEEN = re.compile(
    rb"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?:\.0*)?(?:px|pt|em|rem|%)?\s*(?:[;!]|\Z)"
    rb"|opacity\s*:\s*0(?:\.0*)?\s*(?:[;!]|\Z)"
)
_WHITE = rb"\s*:\s*(?:#fff(?:fff)?\b|white\b|rgba?\(\s*255\s*,\s*255\s*,\s*255\b)"
_WHITE_TEXT = re.compile(rb"(?<![\w-])color" + _WHITE)
_WHITE_GROUND = re.compile(rb"(?<![\w-])background(?:-color)?" + _WHITE)
_TAGS = re.compile(r"<[^<>]*>")
_HIDDEN_LENGTH = 150
_LONGEST_TAG, _LONGEST_ELEMENT, _MOST_ELEMENTS = 1_000, 20_000, 1_000
_PROBE = 40

_INVISIBLE = "\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064\ufeff"
_INVISIBLE_RUN = re.compile(f"[{_INVISIBLE}]{{6,}}")
_WITHIN_WORDS = re.compile(f"(?<=[A-Za-z])[\u00ad{_INVISIBLE}]+(?=[A-Za-z])")
_OVERRIDES = "\u202d\u202e"
# After a black flag they spell the flag of a region
_TAG_CHARACTERS = re.compile("(?<!\U0001f3f4)(?<![\U000e0020-\U000e007f])[\U000e0020-\U000e007f]{4,}")
_TAG_BYTES = b"\xf3\xa0"

_MOST_PLACES = 20_000
"""Of one word that a pattern starts with: a text of nothing else must not take minutes."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`flag` is its kind, short and stable; `reason` says what and where."""

    flag: str
    severity: Severity
    reason: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """`rest` is what follows one of `starts`, in a text that holds one of `needs`, if there are any."""

    name: str
    weight: int
    starts: tuple[str, ...]
    needs: tuple[str, ...]
    rest: re.Pattern[str]

    def meets(self, lower: str) -> bool:
        if self.needs and not any(map(lower.__contains__, self.needs)):
            return False
        there = filter(lower.__contains__, self.starts)
        return any(self.rest.match(lower, end) for word in there for end in _ends(lower, word))


Scan: TypeAlias = Callable[[str, bytes, Document | None], list[Finding]]


def unscanned(_uri: str, _body: bytes, _document: Document | None) -> list[Finding]:
    return []


def scan(uri: str, body: bytes, document: Document | None, file_mb: float = 200.0) -> list[Finding]:
    """The worst first. Of bytes that no document could be made of, only whether they are a program in disguise."""
    found = list(_disguised(uri, body))
    if document is not None:
        _, stored = decompressed(uri, body, file_mb)
        found += (*_in_file(inner(uri), stored, document), *_in_text(document), *_in_html(stored, document))
    return sorted(found, key=lambda finding: finding.severity == "flag")


def flagging(uri: str, body: bytes, document: Document | None, file_mb: float = 200.0) -> list[Finding]:
    """As `scan`, but nothing is quarantined."""
    return [replace(finding, severity="flag") for finding in scan(uri, body, document, file_mb)]


def quarantine_reason(findings: Sequence[Finding]) -> str:
    """Empty if there is none."""
    return "; ".join(finding.reason for finding in findings if finding.severity == "quarantine")


def flagged(document: Document, findings: Sequence[Finding]) -> Document:
    if not findings:
        return document
    flags = sorted({finding.flag for finding in findings})
    return replace(document, metadata={**document.metadata, FLAGS: flags})


def _disguised(uri: str, body: bytes) -> Iterator[Finding]:
    suffix = suffix_of(uri)
    if suffix in _DOCUMENTS and (program := _program(body)):
        severity: Severity = "flag" if program == "a script" else "quarantine"
        yield Finding("executable", severity, f"{program} named {suffix}")


def _program(body: bytes) -> str:
    if body.startswith(b"\x7fELF"):
        return "a Linux program"
    if body.startswith(b"MZ") and body[(at := int.from_bytes(body[60:64], "little")) : at + 4] == b"PE\0\0":
        return "a Windows program"
    if body.startswith(_MACH_O):
        return "a macOS program"
    return "a script" if body.startswith((b"#!/", b"#! /")) else ""


def _in_file(uri: str, body: bytes, document: Document) -> Iterator[Finding]:
    if document.media_type == "application/pdf":
        yield from _in_pdf(body)
    elif body.startswith(_ZIP):
        yield from _in_archive(suffix_of(uri), body)
    elif body.startswith(_OLE) and _MACRO_PROJECT in body:
        yield Finding("macros", "flag", "macros (a VBA project)")


def _in_archive(suffix: str, body: bytes) -> Iterator[Finding]:
    try:
        names = archive.opened(body).names
    except DocumentError:
        return
    for name in names:
        lower = name.lower()
        if lower.endswith("vbaproject.bin"):
            disguise = suffix in _WITHOUT_MACROS
            where = f"in a {suffix}, which may have none" if disguise else f"({name})"
            yield Finding("macros", "quarantine" if disguise else "flag", f"macros {where}")
        elif lower.endswith(_PROGRAMS):
            yield Finding("executable", "quarantine", f"a program inside: {name:.200}")
        elif lower.endswith(_ARCHIVES):
            yield Finding("nested-archive", "flag", f"an archive inside: {name:.200}")


def _in_pdf(body: bytes) -> Iterator[Finding]:
    parts = [body, *_object_streams(body)]
    if any(_LAUNCH.search(part) for part in parts):
        yield Finding("active-content", "quarantine", "a PDF action that starts a program (/Launch)")
    if any(_JAVASCRIPT.search(part) for part in parts):
        yield Finding("active-content", "flag", "JavaScript in a PDF")
    if any(_ATTACHMENT.search(part) for part in parts):
        yield Finding("embedded-file", "flag", "a file attached to a PDF")


def _object_streams(body: bytes) -> Iterator[bytes]:
    """Where newer PDFs keep their dictionaries, compressed; up to _OBJECT_BYTES in sum."""
    left = _OBJECT_BYTES
    for found in islice(_OBJECT_STREAM.finditer(body), _MOST_OBJECT_STREAMS):
        with suppress(zlib.error):
            part = zlib.decompressobj().decompress(memoryview(body)[found.end() :], left)
            left -= len(part)
            yield part
        if left <= 0:
            return


def _in_text(document: Document) -> Iterator[Finding]:
    text = f"{document.title}\n{document.text}"
    if not text.isascii():
        yield from _in_rare_characters(text)
        if _has(text, "\u00ad" + _INVISIBLE):
            text = _WITHIN_WORDS.sub("", text)
    yield from _orders(text, hidden=False)


def _in_rare_characters(text: str) -> Iterator[Finding]:
    tags = _TAG_BYTES in text.encode("utf-8", "surrogatepass")  # faster than to look for a hundred characters
    if tags and (found := _TAG_CHARACTERS.search(text)):
        secret = "".join(chr(ord(each) - 0xE0000) for each in found[0])
        yield Finding("hidden-text", "quarantine", f"text in invisible tag characters: {secret[:80]!r}")
    if _has(text, _INVISIBLE) and _INVISIBLE_RUN.search(text):
        yield Finding("hidden-text", "flag", "a run of invisible characters")
    if _has(text, _OVERRIDES):
        yield Finding("hidden-text", "flag", "characters that reverse the direction of text")


def _has(text: str, characters: str) -> bool:
    return any(each in text for each in characters)


def _orders(text: str, hidden: bool) -> Iterator[Finding]:
    lower = text.lower()
    met = [pattern for pattern in _patterns() if pattern.meets(lower)]
    if met:
        weight = sum(pattern.weight for pattern in met) + (_HIDDEN_WEIGHT if hidden else 0)
        severity: Severity = "quarantine" if weight >= _ENOUGH else "flag"
        where = " in hidden text" if hidden else ""
        yield Finding("prompt-injection", severity, f"text{where} that " + ", ".join(pattern.name for pattern in met))


def _ends(text: str, word: str) -> Iterator[int]:
    """Where the word ends that stands there as a word, or begins with a mark."""
    at, wordy = text.find(word), word[0].isalpha()
    for _ in range(_MOST_PLACES):
        if at < 0:
            return
        if not (wordy and at and text[at - 1].isalnum()):
            yield at + len(word)
        at = text.find(word, at + 1)


def _in_html(body: bytes, document: Document) -> Iterator[Finding]:
    if document.media_type != "text/html":
        return
    page = body.lower()
    if active := sorted({found[1].decode() for found in _ACTIVE.finditer(page)}):
        yield Finding("active-content", "flag", f"HTML with <{'>, <'.join(active)}>")
    if b"javascript:" in page and _SCRIPT_LINK.search(page):
        yield Finding("active-content", "flag", "a link that runs a script (javascript:)")
    if b"style" in page:
        yield from _in_hidden_elements(page, document)


def _in_hidden_elements(page: bytes, document: Document) -> Iterator[Finding]:
    """Only of elements whose text is a part of the document: what the parser has left out harms nobody."""
    unseen = (style for style in _STYLE.finditer(page) if _unseen(style[1][1:-1]))
    hidden = [text for style in islice(unseen, _MOST_ELEMENTS) if (text := _inside(page, style))]
    if not hidden:
        return
    indexed = _squeezed(document.text.lower())
    shown = [text for text in hidden if _squeezed(text)[:_PROBE] in indexed]
    if any(len(text) >= _HIDDEN_LENGTH for text in shown):
        yield Finding("hidden-text", "flag", f"text that the page does not show: {max(shown, key=len)[:80]!r}")
    yield from _orders("\n".join(shown), hidden=True)


def _unseen(style: bytes) -> bool:
    return bool(_UNSEEN.search(style) or (_WHITE_TEXT.search(style) and _WHITE_GROUND.search(style)))


def _inside(page: bytes, style: re.Match[bytes]) -> str:
    """The text of the element with that style, up to the next end of such an element."""
    tag = _OPENING.search(page, max(0, style.start() - _LONGEST_TAG), style.start())
    begin = page.find(b">", style.end(), style.end() + _LONGEST_TAG) + 1
    if not tag or not begin:
        return ""
    end = page.find(b"</" + tag[1], begin, begin + _LONGEST_ELEMENT)
    content = page[begin : end if end >= 0 else begin + _LONGEST_ELEMENT]
    return " ".join(unescape(_TAGS.sub(" ", content.decode("utf-8", "replace"))).split())


def _squeezed(text: str) -> str:
    return "".join(text.split())


@cache
def _patterns() -> tuple[Pattern, ...]:
    table = yaml.safe_load((files("rag_core.parsing") / "scan_patterns.yaml").read_text("utf-8"))
    return tuple(
        Pattern(
            each["name"],
            each["weight"],
            tuple(each["starts"]),
            tuple(each.get("with", ())),
            re.compile(each["pattern"], re.MULTILINE),
        )
        for each in table
    )
