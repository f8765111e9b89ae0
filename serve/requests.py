"""What a request asks, as the graph understands it."""

from math import inf
from typing import Annotated

from fastapi import Depends, Request

from rag_core.storage.filters import parsed_filter
from rag_core.telemetry.operation import asked as tell_question
from rag_core.types import Query
from serve import schemas
from serve.access import Caller, caller
from serve.graph import Graph

Who = Annotated[Caller, Depends(caller)]


async def the_graph(request: Request) -> Graph:
    """No function of a thread: where all of them wait for the store, questions and probes would, too."""
    graph: Graph = request.app.state.graph
    return graph


Served = Annotated[Graph, Depends(the_graph)]


def query(asked: schemas.Asked, text: str, who: Caller, session_id: str = "") -> Query:
    """FilterError for a filter that the grammar does not allow."""
    tell_question(text)
    return Query(
        text=text,
        tenant=who.tenant,
        collection=asked.collection,
        filters=parsed_filter(asked.filters) if asked.filters is not None else None,
        groups=who.groups,
        session_id=session_id,
        timeout=asked.timeout_ms / 1000 if asked.timeout_ms else inf,
    )
