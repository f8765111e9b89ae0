"""`/v1/documents`: what is stored, and what is not and why."""

from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from rag_core.errors import BusyError
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import while_away
from rag_core.types import DEFAULT_COLLECTION, DocumentStatus
from serve.bodies.openapi import CHANGES, Statuses, shows
from serve.bodies.requests import Text
from serve.bodies.responses import Chunks, ShownDocument
from serve.bodies.responses import Documents as DocumentsPage
from serve.http.connections import catalog
from serve.http.cursors import Paged, listing
from serve.http.dependencies import Served, Who
from serve.http.responses import as_json

router = APIRouter()

NIL = str(UUID(int=0))
PATIENCE = 2.0
"""Seconds for whoever works on the source of what is to be deleted: another delete, say, which takes a moment."""
LISTED = ("id", "uri", "title", "status", "chunks", "version", "updated_at", "metadata")
SHOWN = (*LISTED, "collection", "stage", "reason")
PLAIN_TEXT = {"X-Content-Type-Options": "nosniff"}
TEXT: Statuses = {200: {"description": "The text", "content": {"text/plain": {"schema": {"type": "string"}}}}}


class Documents(Paged):
    collection: Text = DEFAULT_COLLECTION
    status: DocumentStatus | None = None


@router.get("/v1/documents", responses=shows(DocumentsPage))
def documents(asked: Annotated[Documents, Query()], who: Who, graph: Served) -> Response:
    """In an order that stays."""
    order = listing(graph, who, "id", "documents", asked.collection, asked.status)
    after = UUID(order.after(asked.cursor, NIL))
    with catalog(graph, who) as known:
        rows = known.readable_documents(asked.collection, who.groups, asked.status, after, asked.one_more)
    page, more = order.page(rows, asked.limit)
    return as_json({"data": [_only(LISTED, row) for row in page], **more})


@router.get("/v1/documents/{id}", responses=shows(ShownDocument))
def document(id: UUID, who: Who, graph: Served) -> Response:
    with catalog(graph, who) as known:
        return as_json(_only(SHOWN, known.readable_document(id, who.groups)))


@router.get("/v1/documents/{id}/content", response_class=PlainTextResponse, responses=TEXT)
def content(id: UUID, who: Who, graph: Served) -> Response:
    """The text as it is stored: what the offsets of chunks and citations count in."""
    with catalog(graph, who) as known:
        found = known.readable_document(id, who.groups)
        text = known.content(found["collection_id"], id)
    return Response(text, media_type="text/plain", headers=PLAIN_TEXT)


@router.get("/v1/documents/{id}/chunks", responses=shows(Chunks))
def chunks(id: UUID, asked: Annotated[Paged, Query()], who: Who, graph: Served) -> Response:
    """In text order."""
    order = listing(graph, who, "ordinal", "chunks", str(id))
    after = int(order.after(asked.cursor, "-1"))
    with catalog(graph, who) as known:
        found = known.readable_document(id, who.groups)
        rows = known.some_chunks(found["collection_id"], id, after, asked.one_more)
    page, more = order.page(rows, asked.limit)
    return as_json({"data": page, **more})


@router.delete("/v1/documents/{id}", status_code=204, responses=CHANGES)
def delete(id: UUID, who: Who, graph: Served) -> None:
    """With all that hangs on it. BusyError while a job is at work on its source for longer than a moment: it brings the
    document back if it is there still."""
    with catalog(graph, who) as known:
        found = known.readable_document(id, who.groups)
        with closing(Ledger(known.connection, who.tenant)) as ledger:
            for attempt in while_away(PATIENCE, BusyError):
                with attempt:
                    ledger.claim(found["collection_id"], [found["source"]])
            known.drop_documents(found["collection"], [id])


def _only(names: tuple[str, ...], row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in names}
