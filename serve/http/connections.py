"""Connections to the store for the caller's tenant. They block, so only routes that run in a thread use them."""

from collections.abc import Iterator
from contextlib import contextmanager

from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import Ledger
from serve.graph import Graph
from serve.http.caller import Caller


@contextmanager
def open_catalog(graph: Graph, caller: Caller) -> Iterator[Catalog]:
    with graph.postgres.connect() as connection:
        yield Catalog(connection, caller.tenant)


@contextmanager
def open_ledger(graph: Graph, caller: Caller) -> Iterator[Ledger]:
    with graph.postgres.connect() as connection:
        yield Ledger(connection, caller.tenant)
