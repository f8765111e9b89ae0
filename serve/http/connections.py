"""Connections to the store for the caller's tenant. They block, so only routes that run in a thread use them."""

from collections.abc import Iterator
from contextlib import contextmanager

from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import Ledger
from serve.authentication.caller import Caller
from serve.services import Services


@contextmanager
def open_catalog(services: Services, caller: Caller) -> Iterator[Catalog]:
    with services.postgres.connect() as connection:
        yield Catalog(connection, caller.tenant)


@contextmanager
def open_ledger(services: Services, caller: Caller) -> Iterator[Ledger]:
    with services.postgres.connect() as connection:
        yield Ledger(connection, caller.tenant)
