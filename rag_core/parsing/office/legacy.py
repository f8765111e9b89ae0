"""The text of old Office documents where LibreOffice is not installed, read by the optional library kreuzberg.

Headings, lists and tables become plain lines.
"""

import re

from rag_core.errors import DocumentError
from rag_core.parsing.flags import with_flags
from rag_core.parsing.sections import title_from_first_line
from rag_core.types import Document

VERSION = 1

STRUCTURE_LOST = "structure-lost"
"""The flag of a document that was read without its headings, lists and tables."""

# The prompts of the master slide, which kreuzberg reads as a slide's text
_PROMPTS = re.compile(r"Click to edit Master \w+ styles?\s+(?:(?:Second|Third|Fourth|Fifth) level\s+)*")


def read_text(uri: str, body: bytes, media_type: str) -> Document:
    """Raises DocumentError: skipped if kreuzberg is not installed, failed if the document is damaged."""
    try:
        from kreuzberg import ExtractionConfig, KreuzbergError, extract_bytes_sync  # the library is optional
    except ModuleNotFoundError as error:
        reason = "needs LibreOffice (no program soffice on the PATH) or kreuzberg (the extra [legacy])"
        raise DocumentError("parse", reason, status="skipped") from error
    try:
        extracted = extract_bytes_sync(body, media_type, ExtractionConfig(output_format="plain", use_cache=False))
    except KreuzbergError as error:
        raise DocumentError("parse", f"damaged document: {error}") from error
    text = extracted.content.replace("\r\n", "\n").replace("\r", "\n")
    text = _PROMPTS.sub("", text)
    authors = [str(author) for author in extracted.metadata.get("authors") or ()]
    document = Document(
        uri=uri,
        text=text,
        title=str(extracted.metadata.get("title") or "") or title_from_first_line(text),
        media_type=media_type,
        metadata={"authors": authors} if authors else {},
    )
    return with_flags(document, [STRUCTURE_LOST])
