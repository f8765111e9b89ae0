"""`/v1/collections`: what can be asked."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from serve.bodies.openapi import shows
from serve.bodies.responses import Collections
from serve.http.connections import catalog
from serve.http.cursors import Paged, listing
from serve.http.dependencies import Served, Who
from serve.http.responses import as_json

router = APIRouter()


@router.get("/v1/collections", responses=shows(Collections))
def collections(asked: Annotated[Paged, Query()], who: Who, graph: Served) -> Response:
    """In the order of their names, with the model that embeds them, and what the caller may read in them."""
    order = listing(graph, who, "name", "collections")
    with catalog(graph, who) as known:
        rows = known.readable_collections(who.groups, order.after(asked.cursor, ""), asked.one_more)
    page, more = order.page(rows, asked.limit)
    return as_json({"data": page, **more})
