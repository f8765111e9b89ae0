"""A job that publishes generated documents without a sync."""

import time
from collections.abc import Sequence

from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import WriteTarget
from rag_core.types import Draft, Space


def begin_job(
    postgres: Postgres, tenant: str, collection: str, space: Space, documents: Sequence[Draft]
) -> WriteTarget:
    """Begins a job that adds these documents. Searches of the collection use `space`."""
    with postgres.connect() as connection:
        catalog = Catalog(connection, tenant)
        collection_row, space_number = catalog.ensure_collection(collection), catalog.ensure_space(space)
        catalog.move_to_space(collection_row.id, space_number)
        items = [(draft.id, draft.entry.uri, "add") for draft in documents]
        job = Ledger(connection, tenant).begin(collection_row.id, [1], "benchmark", {}, 0, items)  # type: ignore[arg-type]
    return WriteTarget(
        postgres=postgres,
        tenant=tenant,
        collection=collection_row.id,
        space=space_number,
        job=job.id,
        run=job.run,
        listed_ns=time.time_ns(),
    )
