"""The request bodies of `/v1/ingest`: documents as JSON, file uploads, and sources."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from rag_core.ingestion.given_documents import ChunkBody
from rag_core.types import DEFAULT_COLLECTION
from serve.bodies.fields import (
    DocumentText,
    Groups,
    Id,
    Location,
    Metadata,
    Name,
    RejectedUrl,
    SourceType,
    Title,
    Uri,
    limit_members,
)

MAX_DOCUMENTS = 1_000
MAX_CHUNKS, MAX_DIMENSION = 10_000, 16_384
MAX_LOCATIONS = 100


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    _limit_members = limit_members


class DocumentBody(Strict):
    """A document. Sending the same `id` again replaces the document.

    The default `id` is the `uri`. Without one it is a hash of the text, so the same text sent twice is one document.
    """

    id: Id = ""
    uri: Uri = Field("", description="the address of the document, which citations link to")
    title: Title = ""
    url: RejectedUrl = None
    text: DocumentText
    metadata: Metadata = {}
    access: Groups = None
    chunks: Annotated[
        list[ChunkBody],
        Field(max_length=MAX_CHUNKS, description="its chunks, if it brings them"),
        WithJsonSchema({"type": "array", "maxItems": MAX_CHUNKS, "items": ChunkBody.model_json_schema()}),
    ] = []
    vector: list[float] = Field(
        [], max_length=MAX_DIMENSION, description="the vector of the whole text as one chunk; not with `chunks`"
    )
    model: str = Field("", max_length=200, description="the embedding model of the vectors, which is then checked")


class SourceBody(Strict):
    """Files under `ingestion.allowed_locations` of the gateway, read as `rag ingest LOCATIONS...` reads them."""

    type: SourceType
    locations: list[Location] = Field(min_length=1, max_length=MAX_LOCATIONS)
    prune: bool = Field(True, description="delete documents that the source no longer has")
    confirmed: bool = Field(False, description="allow the deletion of a large share of a source")
    checksum: bool = Field(False, description="read every file and compare its hash")


class IngestBody(Strict):
    """The body of a request with documents, a source, or both."""

    collection: Name = DEFAULT_COLLECTION
    profile: Name | None = None
    documents: Annotated[
        list[Any],
        Field(max_length=MAX_DOCUMENTS),
        WithJsonSchema({"type": "array", "maxItems": MAX_DOCUMENTS, "items": DocumentBody.model_json_schema()}),
    ] = []
    source: Annotated[
        SourceBody | None, WithJsonSchema({"anyOf": [SourceBody.model_json_schema(), {"type": "null"}]})
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _accept_one_document(cls, body: object) -> object:
        """Reads `document` as `documents` with one element."""
        if not isinstance(body, Mapping) or "document" not in body or "documents" in body:
            return body
        return {**{key: value for key, value in body.items() if key != "document"}, "documents": [body["document"]]}

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not self.documents and self.source is None:
            raise ValueError("the request must have documents or a source")
        return self


class UploadBody(Strict):
    """The fields besides the files. `metadata` and `access` are JSON that applies to every file."""

    collection: Name = DEFAULT_COLLECTION
    profile: Name | None = None
    metadata: Metadata = {}
    access: Groups = None
