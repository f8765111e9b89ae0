"""Documents as JSON that bring their own chunks, or chunks and vectors: the format of given documents.

A document is one JSON object. Names in parentheses mean the same:

    {"id": "keys", "uri": "https://example.org/keys", "title": "Keys", "text" (content): "...", "language": "en",
     "media_type": "text/plain", "metadata": {"year": 2026}, "model": "all-MiniLM-L6-v2",
     "chunks": [{"start" (start_index): 0, "end" (end_index): 120, "prefix": "", "metadata": {},
                 "vector" (embedding): [0.1, ...]}]}

Only `text` is required. A chunk can have its `text` instead of `start` and `end`; it is then searched after the start
of the chunk before. If all have one, the document needs no text: that is the chunks' texts, separated by empty lines.
A `vector` of the document itself is that of its whole text as one chunk.
"""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator

from rag_core.chunking.given import sort_given
from rag_core.errors import DocumentError, validation_lines
from rag_core.parsing.media_types import SUFFIXES_BY_MEDIA_TYPE
from rag_core.parsing.metadata import complete_metadata
from rag_core.types import UNSTORABLE, Document, GivenChunk

GIVEN_MEDIA_TYPE = "application/vnd.rag.document+json"
VERSION = 1
"""A number to increase when the same object becomes another document."""

_SEPARATOR = "\n\n"


def _check_storable(text: str) -> str:
    if UNSTORABLE.search(text):
        raise ValueError("text must not contain NUL or lone surrogates")
    return text


def _check_media_type(media_type: str) -> str:
    if media_type not in SUFFIXES_BY_MEDIA_TYPE:
        raise ValueError(f"media_type must be one of {', '.join(SUFFIXES_BY_MEDIA_TYPE)}")
    return media_type


def _names(*names: str) -> Any:
    return Field(validation_alias=AliasChoices(*names))


Text = Annotated[str, AfterValidator(_check_storable)]
Vector = Annotated[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], _names("vector", "embedding")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ChunkBody(_Strict):
    """A chunk: either `start` and `end`, in code points of the document's text, or its own `text`."""

    text: Annotated[Text, _names("text", "content")] = ""
    start: Annotated[int | None, _names("start", "start_index")] = None
    end: Annotated[int | None, _names("end", "end_index")] = None
    prefix: Text = ""
    metadata: dict[str, str | bool | int | float | list[str]] = {}
    vector: Vector = ()

    @model_validator(mode="after")
    def _check_position(self) -> Self:
        if (self.start is None) != (self.end is None) or (self.start is None and not self.text):
            raise ValueError("a chunk must have start and end, or a text")
        return self


class DocumentBody(_Strict):
    id: Annotated[Text, _names("id", "_id")] = ""
    uri: Text = ""
    title: Text = ""
    text: Annotated[Text, _names("text", "content")] = ""
    language: str = ""
    media_type: Annotated[str, AfterValidator(_check_media_type)] = "text/plain"
    metadata: dict[str, str | bool | int | float | list[str]] = {}
    model: str = ""
    chunks: tuple[ChunkBody, ...] = ()
    vector: Vector = ()

    @property
    def name(self) -> str:
        """The id; the default is the uri, or else a hash of the text."""
        return self.id or self.uri or f"sha256:{sha256(self.full_text.encode()).hexdigest()}"

    @property
    def full_text(self) -> str:
        return self.text or _SEPARATOR.join(chunk.text for chunk in self.chunks)

    @model_validator(mode="after")
    def _check_text(self) -> Self:
        if not self.full_text.strip():
            raise ValueError("a document must have a text, or chunks with texts")
        if self.vector and self.chunks:
            raise ValueError("a document must have a vector or chunks, not both")
        return self


def decode_given(body: bytes) -> DocumentBody:
    """Raises DocumentError("parse", ...) with the first three broken rules."""
    try:
        return DocumentBody.model_validate_json(body)
    except ValidationError as error:
        raise DocumentError("parse", "; ".join(validation_lines(error, "document")[:3])) from error


def parse_given(
    uri: str, body: bytes, model: str, detect_language: bool, parse_body: Callable[[str, bytes], Document]
) -> Document:
    """The document of a JSON object. `parse_body` parses the text of one without chunks and vectors, by its uri.

    Raises DocumentError("parse", ...) if the object breaks a rule, or if it names another embedding model than `model`.
    """
    given = decode_given(body)
    if given.model not in ("", model):
        raise DocumentError("parse", f"its vectors must be those of the collection's model {model}, got {given.model}")
    if given.chunks or given.vector:
        text = given.full_text
        parsed = Document(uri=uri, text=text, title=given.title, media_type=given.media_type, language=given.language)
        parsed = complete_metadata(parsed, detect_language)
        parsed = sort_given(replace(parsed, given=tuple(_locate_chunks(given, text))))
    else:
        parsed = parse_body(uri + SUFFIXES_BY_MEDIA_TYPE[given.media_type], given.text.encode())
    url = {"url": given.uri} if given.uri else {}
    return replace(
        parsed,
        uri=uri,
        title=given.title or parsed.title,
        language=given.language or parsed.language,
        metadata={**parsed.metadata, **given.metadata, **url},
    )


def _locate_chunks(given: DocumentBody, text: str) -> list[GivenChunk]:
    """The chunks with their spans."""
    if given.vector:
        return [GivenChunk(start=0, end=len(text), vector=given.vector)]
    located: list[GivenChunk] = []
    for ordinal, chunk in enumerate(given.chunks):
        start, end = chunk.start, chunk.end
        if start is None or end is None:
            start = text.find(chunk.text, located[-1].start + 1 if located else 0)
            end = start + len(chunk.text)
        if start < 0 or (chunk.text and text[start:end] != chunk.text):
            raise DocumentError(
                "parse", f"chunk {ordinal} must be a part of the text, in the same order, got {chunk.text!r:.60}"
            )
        located.append(
            GivenChunk(start=start, end=end, prefix=chunk.prefix, metadata=chunk.metadata, vector=chunk.vector)
        )
    return located
