"""Which parser reads what: by suffix, and by content where the suffix says nothing."""

import re
from functools import cache
from importlib.metadata import version

from rag_core.errors import DocumentError
from rag_core.ingestion import metadata
from rag_core.ingestion.parsing import encoding, html, markdown, text
from rag_core.ingestion.parsing.compression import inner
from rag_core.protocols import Parser

VERSION = 1

HEAD = 8192
"""Bytes that decide what content is."""

_PARSERS: dict[str, Parser] = {
    "markdown": markdown.MarkdownParser(),
    "html": html.HtmlParser(),
    "text": text.TextParser(),
}
_SUFFIXES = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd"), "markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".txt", ".text", ".log", ".rst"), "text"),
}
_DOCUMENTS_OF_OTHERS = (b"%PDF-", b"%!PS", rb"{\rtf", b"PK\x03\x04")
_CONTROL = re.compile(rb"[\x01-\x07\x0e-\x1a\x1c-\x1f\x7f]")


def parser_for(uri: str, head: bytes) -> Parser:
    """`head` is the document's first HEAD bytes, decompressed. DocumentError, skipped, if nothing here reads it."""
    suffix = suffix_of(uri)
    if _is_binary(head):
        raise DocumentError("parse", f"unsupported: {suffix or 'binary content'}", status="skipped")
    return _PARSERS[_SUFFIXES.get(suffix) or ("html" if _is_html(head) else "text")]


def recipe_part(uri: str) -> str:
    """Changes exactly when the way changes in which a document of this uri would be parsed."""
    return _recipe(_SUFFIXES.get(suffix_of(inner(uri)), "unknown"))


def suffix_of(uri: str) -> str:
    """Lower case, with its dot; empty where there is none."""
    stem, dot, suffix = uri[uri.rfind("/") + 1 :].rpartition(".")
    return f".{suffix.lower()}" if dot and stem else ""


@cache
def _recipe(name: str) -> str:
    shared = (f"formats {VERSION}", f"encoding {encoding.VERSION}", f"metadata {metadata.VERSION}")
    return ", ".join((name, *_MADE_OF[name](), *shared))


def _made_of_markdown() -> tuple[str, ...]:
    return (f"markdown {markdown.VERSION}",)


def _made_of_text() -> tuple[str, ...]:
    return (f"text {text.VERSION}",)


def _made_of_html() -> tuple[str, ...]:
    converter = f"{html.PACKAGE} {version(html.PACKAGE)}"
    return (f"html {html.VERSION}", converter, *_made_of_markdown(), *_made_of_text())


_MADE_OF = {
    "markdown": _made_of_markdown,
    "text": _made_of_text,
    "html": _made_of_html,
    "unknown": _made_of_html,  # content decides, and may find either
}


def _is_binary(head: bytes) -> bool:
    mark, _ = encoding.marked(head)
    if mark:
        return False
    controls = len(_CONTROL.findall(head))
    return b"\0" in head or head.startswith(_DOCUMENTS_OF_OTHERS) or controls * 50 > len(head)


def _is_html(head: bytes) -> bool:
    start = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return start.startswith(b"<") and re.search(rb"<(?:!doctype )?html[\s>]", start) is not None
