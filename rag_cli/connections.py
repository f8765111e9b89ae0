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
def claimed(options: Globals, collection: str, *uris: str) -> Iterator[Catalog]:
    """The catalog, while no job can begin on these sources of the collection: all of them where none is named.

    BusyError if a job is at work on one.
    """
    with catalog(options) as known:
        sources = [source.id for source in known.sources(collection) if not uris or source.uri in uris]
        Ledger(known.connection, options.settings.tenant).claim(known.collection(collection).id, sources)
        yield known


@contextmanager
def ledger(options: Globals) -> Iterator[Ledger]:
    settings = options.settings
    with Postgres.open(settings.store.url).connect() as connection:
        yield Ledger(connection, settings.tenant)
