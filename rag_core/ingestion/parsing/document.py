"""Stored bytes to a described document."""

from dataclasses import replace

from rag_core.errors import DocumentError
from rag_core.ingestion.metadata import described
from rag_core.ingestion.parsing.compression import decompressed
from rag_core.ingestion.parsing.formats import HEAD, parser_for
from rag_core.types import Document


def parse(uri: str, body: bytes, detect_language: bool, file_mb: float, text_mb: float) -> Document:
    """DocumentError("parse", ...) for what cannot become text; skipped where it is empty or of an unknown format."""
    name, stored = decompressed(uri, body, file_mb)
    document = parser_for(name, stored[:HEAD]).parse(name, stored)
    _refuse(document.text, text_mb)
    return replace(described(document, detect_language), uri=uri)


def _refuse(text: str, limit_mb: float) -> None:
    if not text.strip():
        raise DocumentError("parse", "empty", status="skipped")
    size = len(text.encode()) / 1e6
    if size > limit_mb:
        raise DocumentError("parse", f"too large: {size:.1f} MB of text, limit {limit_mb:g} MB")
