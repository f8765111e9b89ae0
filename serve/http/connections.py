"""The store as the caller's tenant has it, over a connection of its own: for a route that is no coroutine, which runs
in a thread."""

from collections.abc import Iterator
from contextlib import contextmanager

from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import Ledger
from serve.graph import Graph
from serve.http.access import Caller


@contextmanager
def catalog(graph: Graph, who: Caller) -> Iterator[Catalog]:
    with graph.postgres.connect() as connection:
        yield Catalog(connection, who.tenant)


@contextmanager
def ledger(graph: Graph, who: Caller) -> Iterator[Ledger]:
    with graph.postgres.connect() as connection:
        yield Ledger(connection, who.tenant)
