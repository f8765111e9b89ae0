"""`/v1/collections`: the collections that can be searched."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from rag_core.wire.documents import Collection, Collections
from serve.bodies.openapi import success_response
from serve.http.connections import open_catalog
from serve.http.cursors import PageParameters, build_listing
from serve.http.dependencies import CurrentServices, Reader
from serve.http.responses import json_response

router = APIRouter()


@router.get("/v1/collections", responses=success_response(Collections))
def collections(page: Annotated[PageParameters, Query()], caller: Reader, services: CurrentServices) -> Response:
    """Lists collections by name, with their embedding model and the number of documents that the caller can read."""
    listing = build_listing(services, caller, "name", "collections")
    after = listing.decode_cursor(page.cursor, "")
    with open_catalog(services, caller) as catalog:
        rows = catalog.readable_collections(caller.groups, after, page.fetch_limit)
    data, paging = listing.split_page(rows, page.limit)
    return json_response(Collections(data=[Collection.from_row(row) for row in data], **paging))
