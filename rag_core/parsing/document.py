"""Parsing of stored bytes into a document with a title, a language and normalized metadata."""

from dataclasses import replace

from rag_core.errors import DocumentError
from rag_core.parsing.compression import decompress
from rag_core.parsing.detection import READ_AS_TEXT, detect_format, is_read_as_text
from rag_core.parsing.encoding import ENCODING_UNCERTAIN, record_doubtful_guesses
from rag_core.parsing.flags import with_flags
from rag_core.parsing.formats import NATIVE, ParserChoice, load_parser
from rag_core.parsing.metadata import complete_metadata
from rag_core.types import UNSTORABLE, Document, Value


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
    with record_doubtful_guesses() as doubtful_guesses:
        document = _replace_unstorable(load_parser(format_, choice).parse(stored_uri, content))
    if not document.text.strip():
        raise DocumentError("parse", "empty", status="skipped")
    size_mb = len(document.text.encode()) / 1e6
    if size_mb > text_mb:
        raise DocumentError("parse", f"too large: {size_mb:.1f} MB of text, limit {text_mb:g} MB")
    completed = complete_metadata(document, detect_language)
    named = replace(completed, uri=uri, metadata={**completed.metadata, "format": format_})
    flags = {ENCODING_UNCERTAIN: bool(doubtful_guesses), READ_AS_TEXT: is_read_as_text(stored_uri, format_)}
    return with_flags(named, (flag for flag, applies in flags.items() if applies))


def _replace_unstorable(document: Document) -> Document:
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
