"""Jobs to write as, in a real store, and a look behind its roles."""

from collections.abc import Sequence
from typing import Any

import psycopg
from drafts import MODIFIED_NS, SPACE, TENANT
from psycopg import Connection

from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import OPTIONS, Postgres
from rag_core.storage.publishing import Target
from rag_core.types import DEFAULT_COLLECTION, Draft, Space


def begin(
    store: Postgres,
    drafts: Sequence[Draft] = (),
    deleted: Sequence[Draft] = (),
    tenant: str = TENANT,
    collection: str = DEFAULT_COLLECTION,
    space: Space = SPACE,
    splade: str = "",
) -> Target:
    """A job with those documents to do, by nobody: it holds no source."""
    with store.connect() as connection:
        catalog = Catalog(connection, tenant)
        known, vectors = catalog.ensure_collection(collection), catalog.ensure_space(space)
        if known.space is None:
            catalog.move_to_space(known.id, vectors)
        items = [(draft.id, draft.entry.uri, "add") for draft in drafts]
        items += [(draft.id, draft.entry.uri, "delete") for draft in deleted]
        job = Ledger(connection, tenant).begin(known.id, [1], "test", {}, 0, items)
    return Target(
        postgres=store,
        tenant=tenant,
        collection=known.id,
        space=vectors,
        job=job.id,
        run=job.run,
        listed_ns=MODIFIED_NS,
        splade=splade,
    )


def publish(store: Postgres, *drafts: Draft, **place: Any) -> Target:
    """By a job of their own, which ends with it."""
    target = begin(store, drafts, **place)
    write(target, drafts)
    end(target)
    return target


def write(target: Target, drafts: Sequence[Draft]) -> None:
    writer = target.open()
    try:
        writer.publish(drafts)
    finally:
        writer.close()


def end(target: Target) -> None:
    with target.postgres.connect() as connection:
        Ledger(connection, target.tenant).end(target.job, "completed")


def superuser(store: Postgres) -> "Connection[Any]":
    """Sees and may do everything; commits each statement."""
    return psycopg.connect(store.dsn, options=OPTIONS, autocommit=True)
