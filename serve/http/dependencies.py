"""What routes depend on: the caller and the graph."""

from typing import Annotated

from fastapi import Depends, Request

from serve.graph import Graph
from serve.http.access import Caller, caller

Who = Annotated[Caller, Depends(caller)]


async def the_graph(request: Request) -> Graph:
    """No function of a thread: where all of them wait for the store, questions and probes would, too."""
    graph: Graph = request.app.state.graph
    return graph


Served = Annotated[Graph, Depends(the_graph)]
