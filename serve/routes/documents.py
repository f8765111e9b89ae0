"""`/v1/documents`: the documents of a collection with their status.

A single document also has the reason if it is not in the index.
"""

from contextlib import closing
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from rag_core.errors import BusyError
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import retry_attempts
from rag_core.telemetry.operation import record_documents
from rag_core.types import DEFAULT_COLLECTION, DocumentStatus
from rag_core.wire.documents import Chunk, Chunks, Document, Documents, ShownDocument
from serve.bodies.fields import Text
from serve.bodies.openapi import CONFLICT_PROBLEMS, Responses, success_response
from serve.http.connections import open_catalog
from serve.http.cursors import NIL_ID, PageParameters, build_listing
from serve.http.dependencies import CurrentServices, DocumentDeleter, Reader
from serve.http.responses import json_response
from serve.public_errors import hide_places

router = APIRouter()

BUSY_TIMEOUT = 2.0
"""Seconds for which a deletion waits while a job or another deletion has locked the source."""
PLAIN_TEXT_HEADERS = {"X-Content-Type-Options": "nosniff"}
TEXT_RESPONSE: Responses = {200: {"description": "The text", "content": {"text/plain": {"schema": {"type": "string"}}}}}


class DocumentFilter(PageParameters):
    """The query parameters of the listing of documents."""

    collection: Text = DEFAULT_COLLECTION
    status: DocumentStatus | None = None


@router.get("/v1/documents", responses=success_response(Documents))
def documents(page: Annotated[DocumentFilter, Query()], caller: Reader, services: CurrentServices) -> Response:
    """Lists documents in the order of their ids."""
    listing = build_listing(services, caller, "id", "documents", page.collection, page.status)
    after = UUID(listing.decode_cursor(page.cursor, NIL_ID))
    with open_catalog(services, caller) as catalog:
        rows = catalog.readable_documents(page.collection, caller.groups, page.status, after, page.fetch_limit)
    data, paging = listing.split_page(rows, page.limit)
    record_documents(row["id"] for row in data)
    return json_response(Documents(data=[Document.from_row(row) for row in data], **paging))


@router.get("/v1/documents/{id}", responses=success_response(ShownDocument))
def document(id: UUID, caller: Reader, services: CurrentServices) -> Response:
    with open_catalog(services, caller) as catalog:
        row = catalog.readable_document(id, caller.groups)
    record_documents([id])
    return json_response(
        ShownDocument.from_row({**row, "reason": row["reason"] and hide_places(row["reason"], [row["uri"]])})
    )


@router.get("/v1/documents/{id}/content", response_class=PlainTextResponse, responses=TEXT_RESPONSE)
def content(id: UUID, caller: Reader, services: CurrentServices) -> Response:
    """Returns the stored text, which the offsets of chunks and citations refer to."""
    with open_catalog(services, caller) as catalog:
        document = catalog.readable_document(id, caller.groups)
        text = catalog.content(document["collection_id"], id, caller.groups)
    record_documents([id])
    return Response(text, media_type="text/plain", headers=PLAIN_TEXT_HEADERS)


@router.get("/v1/documents/{id}/chunks", responses=success_response(Chunks))
def chunks(id: UUID, page: Annotated[PageParameters, Query()], caller: Reader, services: CurrentServices) -> Response:
    """Lists the chunks of a document in text order."""
    listing = build_listing(services, caller, "ordinal", "chunks", str(id))
    after = int(listing.decode_cursor(page.cursor, "-1"))
    with open_catalog(services, caller) as catalog:
        document = catalog.readable_document(id, caller.groups)
        rows = catalog.chunk_page(document["collection_id"], id, caller.groups, after, page.fetch_limit)
    record_documents([id])
    data, paging = listing.split_page(rows, page.limit)
    return json_response(Chunks(data=[Chunk.from_row(row) for row in data], **paging))


@router.delete("/v1/documents/{id}", status_code=204, responses=CONFLICT_PROBLEMS)
def delete(id: UUID, caller: DocumentDeleter, services: CurrentServices) -> None:
    """Deletes a document and everything derived from it. The next sync adds it again if its source still has it.

    Responds with 409 if another job works on the source and does not end within 2 seconds.
    """
    with open_catalog(services, caller) as catalog:
        document = catalog.readable_document(id, caller.groups)
        # The claim locks the source, so that no sync writes the document meanwhile. It also ends or requeues killed
        # jobs on the source. Closing the ledger unlocks the source.
        with closing(Ledger(catalog.connection, caller.tenant)) as ledger:
            for attempt in retry_attempts(BUSY_TIMEOUT, BusyError):
                with attempt:
                    ledger.claim(document["collection_id"], [document["source"]])
            catalog.drop_documents(document["collection"], [id])
