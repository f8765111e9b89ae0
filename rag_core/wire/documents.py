"""The shapes of what is stored: documents, chunks, collections, cited spans; and of profiles."""

from datetime import datetime
from uuid import UUID

from pydantic import Field

from rag_core.types import DocumentStatus
from rag_core.wire.shape import Metadata, Page, Shape


class Document(Shape):
    id: UUID
    uri: str
    title: str
    status: DocumentStatus
    chunks: int
    version: int
    updated_at: datetime | None
    metadata: Metadata


class ShownDocument(Document):
    """A document. `stage` and `reason` describe its failure."""

    collection: str
    stage: str | None
    reason: str | None


class Chunk(Shape):
    """A chunk. `start` and `end` are offsets in the document's text."""

    id: UUID
    ordinal: int
    start: int
    end: int
    prefix: str
    text: str
    metadata: Metadata


class Collection(Shape):
    """A collection. `model` and `dimension` are null until something is embedded."""

    name: str
    model: str | None
    dimension: int | None
    documents: int
    chunks: int


class ServedProfile(Shape):
    """`reason`: why the profile is not served; empty if it is."""

    name: str
    version: str = Field("", description="empty if the profile has no version")
    serving: bool
    default: bool
    loaded: bool
    reason: str


class Documents(Page):
    data: list[Document]


class Chunks(Page):
    data: list[Chunk]


class Collections(Page):
    data: list[Collection]


class Profiles(Page):
    data: list[ServedProfile]


class Quoted(Shape):
    """A span of a document's text as `quote`, with the text `before` and `after` it."""

    chunk_id: UUID
    document_id: UUID
    collection: str
    title: str
    language: str
    url: str
    updated_at: datetime | None
    start: int
    end: int
    page: int | None
    section: str | None
    before: str
    quote: str
    after: str
