"""FastAPI dependencies of the routes: the caller and the current graph."""

from typing import Annotated

from fastapi import Depends, Request

from serve.graph import Graph
from serve.http.caller import Caller, identify_caller

CurrentCaller = Annotated[Caller, Depends(identify_caller)]


async def current_graph(request: Request) -> Graph:
    """The application's graph. The function is async, so it needs no thread.

    Questions and probes are therefore answered even while all threads wait for the store.
    """
    graph: Graph = request.app.state.graph
    return graph


CurrentGraph = Annotated[Graph, Depends(current_graph)]
