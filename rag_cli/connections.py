"""Connections of commands to the store, each for one tenant."""

from collections.abc import Iterator
from contextlib import contextmanager

from rag_cli.terminal.options import GlobalOptions
from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres


@contextmanager
def open_catalog(options: GlobalOptions) -> Iterator[Catalog]:
    settings = options.settings
    with Postgres.open(settings.store.url).connect() as connection:
        yield Catalog(connection, settings.tenant)


@contextmanager
def claim_sources(options: GlobalOptions, collection: str, *uris: str) -> Iterator[Catalog]:
    """Yields the catalog. During the block, no job can start on these sources of the collection; no uris mean all.

    Raises BusyError if a job is running on one of them.
    """
    with open_catalog(options) as catalog:
        sources = [source.id for source in catalog.sources(collection) if not uris or source.uri in uris]
        Ledger(catalog.connection, options.settings.tenant).claim(catalog.collection(collection).id, sources)
        yield catalog


@contextmanager
def open_ledger(options: GlobalOptions) -> Iterator[Ledger]:
    settings = options.settings
    with Postgres.open(settings.store.url).connect() as connection:
        yield Ledger(connection, settings.tenant)
