"""Parsing of stored bytes into a document with a title, a language and normalized metadata."""

import re
from dataclasses import replace

from rag_core.errors import DocumentError
from rag_core.parsing.compression import decompress
from rag_core.parsing.detection import READ_AS_TEXT, detect_format, is_read_as_text
from rag_core.parsing.encoding import ENCODING_UNCERTAIN, decode_text, record_doubtful_guesses
from rag_core.parsing.flags import with_flags
from rag_core.parsing.formats import NATIVE, ParserChoice, load_parser
from rag_core.parsing.metadata import complete_metadata
from rag_core.types import MAX_HEADER_CHARS, UNSTORABLE, Document, Value

TABLE_HEADER_CUT = "table-header-cut"
"""The flag of a document with a table whose header row is too long to be repeated completely in chunks."""

_LONG_HEADER = re.compile(rf"^\|[^\n]{{{MAX_HEADER_CHARS},}}\n\|[ :]*---", re.MULTILINE)
_PLAIN_FORMATS = ("text", "markdown")
"""The formats whose text is at least as large as the decoded file, or nearly so."""


def parse(
    uri: str, body: bytes, detect_language: bool, file_mb: float, text_mb: float, choice: ParserChoice = NATIVE
) -> Document:
    """The document, with its format in the metadata.

    Raises DocumentError("parse", ...) for content that cannot become text. Its status is `skipped` if the content is
    empty or of an unknown format.
    """
    stored_uri, content = decompress(uri, body, file_mb)
    if not content.strip():
        raise DocumentError("parse", "empty", status="skipped")
    format_ = detect_format(stored_uri, content, with_images=choice.ocr is not None)
    if format_ in _PLAIN_FORMATS and len(content) > text_mb * 1e6:
        _check_size(decode_text(content), text_mb)  # before it is searched for headings
    with record_doubtful_guesses() as doubtful_guesses:
        document = replace_unstorable(load_parser(format_, choice).parse(stored_uri, content))
    if not document.text.strip():
        raise DocumentError("parse", "empty", status="skipped")
    _check_size(document.text, text_mb)
    completed = complete_metadata(document, detect_language)
    named = replace(completed, uri=uri, metadata={**completed.metadata, "format": format_})
    conditions = {
        ENCODING_UNCERTAIN: doubtful_guesses,
        READ_AS_TEXT: is_read_as_text(stored_uri, format_),
        TABLE_HEADER_CUT: _LONG_HEADER.search(document.text),
    }
    return with_flags(named, (flag for flag, is_present in conditions.items() if is_present))


def _check_size(text: str, text_mb: float) -> None:
    size_mb = len(text.encode("utf-8", "surrogatepass")) / 1e6
    if size_mb > text_mb:
        raise DocumentError("parse", f"too large: {size_mb:.1f} MB of text, limit {text_mb:g} MB")


def replace_unstorable(document: Document) -> Document:
    """Replaces characters that the store cannot hold, each by one other, so that every offset stays valid."""
    metadata: dict[str, Value] = {}
    for key, value in document.metadata.items():
        if isinstance(value, str):
            value = _storable_text(value)
        elif not isinstance(value, bool | int | float):
            value = [_storable_text(text) for text in value]
        metadata[_storable_text(key)] = value
    return replace(
        document,
        text=_storable_text(document.text),
        title=_storable_text(document.title),
        metadata=metadata,
        sections=tuple(
            replace(section, path=tuple(map(_storable_text, section.path))) for section in document.sections
        ),
    )


def _storable_text(text: str) -> str:
    # ten times as fast as the pattern if there is nothing to replace
    is_storable = text.isascii() and "\0" not in text
    return text if is_storable else UNSTORABLE.sub("\ufffd", text)
