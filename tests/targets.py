"""Jobs that write to a real store, and a connection that bypasses the store's roles."""

from collections.abc import Sequence
from typing import Any

import psycopg
from drafts import MODIFIED_NS, SPACE, TENANT
from psycopg import Connection
from waiting import wait_until

from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import OPTIONS, Postgres
from rag_core.storage.publishing import WriteTarget
from rag_core.types import DEFAULT_COLLECTION, Draft, Space


def begin(
    store: Postgres,
    drafts: Sequence[Draft] = (),
    deleted: Sequence[Draft] = (),
    tenant: str = TENANT,
    collection: str = DEFAULT_COLLECTION,
    space: Space = SPACE,
    splade: str = "",
) -> WriteTarget:
    """Begins a job for these documents. It locks no source."""
    with store.connect() as connection:
        catalog = Catalog(connection, tenant)
        collection_row, space_number = catalog.ensure_collection(collection), catalog.ensure_space(space)
        if collection_row.space is None:
            catalog.move_to_space(collection_row.id, space_number)
        items = [(draft.id, draft.entry.uri, "add") for draft in drafts]
        items += [(draft.id, draft.entry.uri, "delete") for draft in deleted]
        job = Ledger(connection, tenant).begin(collection_row.id, [1], "test", {}, 0, items)
    return WriteTarget(
        postgres=store,
        tenant=tenant,
        collection=collection_row.id,
        space=space_number,
        job=job.id,
        run=job.run,
        listed_ns=MODIFIED_NS,
        splade=splade,
    )


def publish(store: Postgres, *drafts: Draft, **options: Any) -> WriteTarget:
    """Publishes the drafts in a new job, and ends it."""
    target = begin(store, drafts, **options)
    write(target, drafts)
    end(target)
    return target


def write(target: WriteTarget, drafts: Sequence[Draft]) -> None:
    writer = target.open()
    try:
        writer.publish(drafts)
    finally:
        writer.close()


def end(target: WriteTarget) -> None:
    with target.postgres.connect() as connection:
        Ledger(connection, target.tenant).end(target.job, "completed")


def superuser(store: Postgres) -> "Connection[Any]":
    """A superuser's connection, which commits each statement."""
    return psycopg.connect(store.dsn, options=OPTIONS, autocommit=True)


def wait_until_unlocked(store: Postgres) -> None:
    """Waits until the server has noticed that a job's connection is closed, which ends the locks on its sources."""
    locks = (
        "select from pg_locks l join pg_database d on d.oid = l.database"
        " where l.locktype = 'advisory' and d.datname = current_database()"
    )
    with superuser(store) as connection:
        wait_until(lambda: connection.execute(locks).fetchone() is None)
