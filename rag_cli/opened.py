"""The store as commands that only read it want it: one connection, one tenant."""

from collections.abc import Iterator
from contextlib import contextmanager

from jobs.options import Globals
from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres


@contextmanager
def catalog(options: Globals) -> Iterator[Catalog]:
    settings = options.settings
    with Postgres.open(settings.store.url).connect() as connection:
        yield Catalog(connection, settings.tenant)


@contextmanager
def ledger(options: Globals) -> Iterator[Ledger]:
    settings = options.settings
    with Postgres.open(settings.store.url).connect() as connection:
        yield Ledger(connection, settings.tenant)
