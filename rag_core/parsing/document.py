"""Stored bytes to a described document."""

from dataclasses import replace

from rag_core.errors import DocumentError
from rag_core.parsing.compression import decompressed
from rag_core.parsing.detection import format_of
from rag_core.parsing.formats import parser_of
from rag_core.parsing.metadata import described
from rag_core.types import UNSTORABLE, Document, Metadata, Value


def parse(uri: str, body: bytes, detect_language: bool, file_mb: float, text_mb: float) -> Document:
    """With its format in the metadata. DocumentError("parse", ...) for what cannot become text; skipped where it is
    empty or of an unknown format.
    """
    name, stored = decompressed(uri, body, file_mb)
    if not stored.strip():
        raise DocumentError("parse", "empty", status="skipped")
    found = format_of(name, stored)
    document = _storable(parser_of(found).parse(name, stored))
    _refuse(document.text, text_mb)
    known = described(document, detect_language)
    return replace(known, uri=uri, metadata={**known.metadata, "format": found})


def _storable(document: Document) -> Document:
    sections = tuple(replace(each, path=tuple(map(_clean, each.path))) for each in document.sections)
    return replace(
        document,
        text=_clean(document.text),
        title=_clean(document.title),
        metadata=_clean_metadata(document.metadata),
        sections=sections,
    )


def _clean(text: str) -> str:
    """One for one, so that every offset stays."""
    # ten times as fast as the pattern where it finds nothing
    plain = text.isascii() and "\0" not in text
    return text if plain else UNSTORABLE.sub("\ufffd", text)


def _clean_metadata(metadata: Metadata) -> Metadata:
    return {_clean(key): _clean_value(value) for key, value in metadata.items()}


def _clean_value(value: Value) -> Value:
    match value:
        case str():
            return _clean(value)
        case bool() | int() | float():
            return value
        case _:
            return [_clean(each) for each in value]


def _refuse(text: str, limit_mb: float) -> None:
    if not text.strip():
        raise DocumentError("parse", "empty", status="skipped")
    size = len(text.encode()) / 1e6
    if size > limit_mb:
        raise DocumentError("parse", f"too large: {size:.1f} MB of text, limit {limit_mb:g} MB")
