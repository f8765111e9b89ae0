"""Retrieval results as dicts: the shape of the node interface and of Hyper-KB.

    {"id": "7c9e...", "content": "Keys are rotated every week.", "score": 0.7, "retriever": "vector",
     "metadata": {"source": "file:///keys.md", "page": 3, "section": "Rotation", "title": "Keys",
                  "document_id": "52ab...", "start_index": 120, "end_index": 148, "updated_at": "2026-11-01T09:30:00"}}

A result of another program needs `id` and `content` only.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from rag_core.errors import UsageError
from rag_core.types import Chunk, Hit, Origin

_REQUIRED = ("id", "content")


def describe_result(hit: Hit, retriever: str) -> dict[str, Any]:
    """The hit as a dict. Metadata of the document that has its own name, such as `source`, is kept."""
    chunk, origin = hit.chunk, hit.origin
    place: dict[str, Any] = {
        "page": None,
        "section": "",
        "title": origin.title,
        "language": origin.language,
        "source": origin.uri,
    }
    if origin.updated_at:
        place["updated_at"] = origin.updated_at.isoformat()
    position = {"document_id": str(chunk.document_id), "start_index": chunk.start, "end_index": chunk.end}
    metadata = {**place, **origin.metadata, **chunk.metadata, "prefix": chunk.prefix, **position}
    content = {"id": str(chunk.id), "content": chunk.text, "score": hit.score, "retriever": retriever}
    return {**content, "metadata": metadata}


def hit_from_result(result: Mapping[str, Any]) -> Hit:
    """The hit of a dict. Raises UsageError if a required key is missing.

    A result without `document_id` and `start_index` is a document of its own, because its place is unknown.
    """
    if missing := [key for key in _REQUIRED if key not in result]:
        raise UsageError(f"a result must have {', '.join(_REQUIRED)}; missing: {', '.join(missing)}")
    metadata, text = result.get("metadata") or {}, str(result["content"])
    id = _uuid_from_text(str(result["id"]))
    has_place = metadata.keys() >= {"document_id", "start_index"}
    document, start = (str(metadata["document_id"]), int(metadata["start_index"])) if has_place else (str(id), 0)
    chunk = Chunk(
        id=id,
        document_id=_uuid_from_text(document),
        ordinal=0,
        text=text,
        start=start,
        end=start + len(text),
        prefix=str(metadata.get("prefix", "")),
        metadata=metadata,
    )
    origin = Origin(
        uri=str(metadata.get("source", "")),
        title=str(metadata.get("title", "")),
        language=str(metadata.get("language", "")),
        updated_at=_parse_time(metadata.get("updated_at", metadata.get("timestamp"))),
        metadata=metadata,
    )
    return Hit(chunk=chunk, origin=origin, score=float(result.get("score", 0.0)))


def _uuid_from_text(text: str) -> UUID:
    with suppress(ValueError):
        return UUID(text)
    return uuid5(NAMESPACE_URL, text)


def _parse_time(value: object) -> datetime | None:
    """The time of an ISO 8601 text or a datetime, in UTC if it has no time zone; None for anything else."""
    with suppress(ValueError):
        time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    return None
