"""Connections of commands to the store, each for one tenant."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from rag_cli.terminal.options import GlobalOptions
from rag_core.storage import embedded
from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.replies import Replies
from rag_core.wiring.encryption import build_cipher


def open_store(options: GlobalOptions) -> Postgres:
    """Opens the store. Prints where the embedded server is when this is its first start."""
    url = options.settings.store.url
    folder = embedded.data_folder()
    is_first_start = url == "embedded" and not folder.exists()
    postgres = Postgres.open(url)
    if is_first_start and not (options.json or options.quiet):
        message = f"started a private Postgres in {folder}; it keeps running until `rag store stop`"
        typer.echo(message, err=True)
    return postgres


@contextmanager
def open_catalog(options: GlobalOptions) -> Iterator[Catalog]:
    with open_store(options).connect() as connection:
        yield Catalog(connection, options.settings.tenant)


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
    with open_store(options).connect() as connection:
        yield Ledger(connection, options.settings.tenant)


@contextmanager
def open_replies(options: GlobalOptions) -> Iterator[Replies]:
    with open_store(options).connect() as connection:
        yield Replies(connection, options.settings.tenant, build_cipher(options.settings.encryption))
