"""Documents and chunks as the dicts that nodes pass on.

    {"id": "file:///keys.pdf", "content": "...", "metadata": {"source": "file:///keys.pdf", "format": "pdf", ...}}
    {"id": "7c9e...", "document_id": "file:///keys.pdf", "content": "...", "start_index": 0, "end_index": 120,
     "metadata": {"source": ..., "page": 1, "section": "Rotation", ...}}

Indexes count code points of the document's content. A document with pages has their offsets as `pages`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.parse import unquote

from rag_core.errors import UsageError
from rag_core.parsing.outline import with_outline
from rag_core.storage.filters import CHUNK_KEYS
from rag_core.types import Chunk, Document, GivenChunk, Metadata

_FIELDS = frozenset(("title", "language"))
"""The metadata that is stored in fields of the document."""
_CHUNK_KEYS = frozenset((*CHUNK_KEYS, "prefix"))
"""The metadata that belongs to the chunk and not to its document."""


def describe_document(document: Document) -> dict[str, Any]:
    place = {"source": document.uri, "title": document.title, "language": document.language}
    described = {"id": document.uri, "content": document.text, "metadata": {**document.metadata, **place}}
    return {**described, "pages": list(document.pages)} if document.pages else described


def document_from_dict(item: Mapping[str, Any]) -> Document:
    """The document, with the sections of its Markdown, and the `chunks` or the `embedding` that it brings.

    Raises UsageError if it has no `id` or `content`.
    """
    check_keys("document", item, ("id", "content"))
    metadata = item.get("metadata") or {}
    outlined = with_outline(
        Document(
            uri=str(item["id"]),
            text=str(item["content"]),
            title=str(metadata.get("title", "")),
            media_type="text/markdown",
            language=str(metadata.get("language", "")),
            metadata=_storable_metadata(metadata, _FIELDS),
        )
    )
    return replace(outlined, pages=tuple(item.get("pages", ())), given=tuple(_read_spans(item)))


def describe_chunk(chunk: Chunk, document: Mapping[str, Any]) -> dict[str, Any]:
    """The chunk of a document that is given as a dict. The chunk inherits the document's metadata."""
    return {
        "id": str(chunk.id),
        "document_id": document["id"],
        "content": chunk.text,
        "start_index": chunk.start,
        "end_index": chunk.end,
        "metadata": {**(document.get("metadata") or {}), **chunk.metadata, "prefix": chunk.prefix},
    }


def documents_from_chunks(chunks: Sequence[Mapping[str, Any]]) -> Iterator[Document]:
    """Yields each document with its chunks as `given`. Raises UsageError if a chunk lacks a key.

    A line break stands for the text between chunks, so the indexes of the chunks stay right.
    """
    for chunk in chunks:
        check_keys("chunk", chunk, ("document_id", "content"))
    by_document = sorted(chunks, key=lambda chunk: str(chunk["document_id"]))
    for id, group in groupby(by_document, key=itemgetter("document_id")):
        yield _join_chunks(str(id), list(group))


def describe_failure(failure: Mapping[str, Any], root: str) -> dict[str, str]:
    """A failure of a sync's report. The document's uri is `root` and its quoted id."""
    id = unquote(failure["uri"].removeprefix(root))
    return {"document_id": id, "stage": failure["stage"], "reason": failure["reason"]}


def check_keys(kind: str, item: Mapping[str, Any], required: Sequence[str]) -> None:
    """Raises UsageError if the item lacks a key."""
    if missing := [key for key in required if key not in item]:
        raise UsageError(f"a {kind} must have {', '.join(required)}; missing: {', '.join(missing)}")


def _read_spans(item: Mapping[str, Any]) -> Iterator[GivenChunk]:
    """Yields the chunks of a document; the whole document if it has only an embedding."""
    whole = {"start_index": 0, "end_index": len(item["content"]), "embedding": item.get("embedding")}
    for chunk in item.get("chunks") or ([whole] if item.get("embedding") else ()):
        check_keys("chunk", chunk, ("start_index", "end_index"))
        vector = tuple(chunk.get("embedding") or ())
        yield GivenChunk(start=chunk["start_index"], end=chunk["end_index"], vector=vector)


def _join_chunks(id: str, chunks: Sequence[Mapping[str, Any]]) -> Document:
    text, spans = "", []
    for chunk in sorted(chunks, key=lambda chunk: int(chunk.get("start_index", 0))):
        content, metadata = str(chunk["content"]), chunk.get("metadata") or {}
        start = int(chunk.get("start_index", len(text) + 1 if text else 0))
        text += "\n" * (start - len(text)) + content[max(0, len(text) - start) :]
        place = {key: metadata[key] for key in CHUNK_KEYS if metadata.get(key)}
        prefix = str(metadata.get("prefix", ""))
        vector = tuple(chunk.get("embedding") or ())
        spans.append(GivenChunk(start=start, end=start + len(content), prefix=prefix, metadata=place, vector=vector))
    first = chunks[0].get("metadata") or {}
    return Document(
        uri=id,
        text=text,
        title=str(first.get("title", "")),
        language=str(first.get("language", "")),
        metadata={"source": id, **_storable_metadata(first, _FIELDS | _CHUNK_KEYS)},
        given=tuple(spans),
    )


def _storable_metadata(metadata: Mapping[str, Any], without: frozenset[str]) -> Metadata:
    """The values that a store can hold: no null values and no objects."""
    return {
        key: value
        for key, value in metadata.items()
        if key not in without and isinstance(value, str | bool | int | float | list | tuple)
    }
