"""A job to publish made-up documents as, where no sync lists any."""

import time
from collections.abc import Sequence

from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import Target
from rag_core.types import Draft, Space


def begun(postgres: Postgres, tenant: str, collection: str, space: Space, documents: Sequence[Draft]) -> Target:
    """A job that runs and has these documents to add; the collection is searched in that space."""
    with postgres.connect() as connection:
        catalog = Catalog(connection, tenant)
        known, number = catalog.ensure_collection(collection), catalog.ensure_space(space)
        catalog.move_to_space(known.id, number)
        items = [(draft.id, draft.entry.uri, "add") for draft in documents]
        job = Ledger(connection, tenant).begin(known.id, [1], "benchmark", {}, 0, items)  # type: ignore[arg-type]
    return Target(
        postgres=postgres,
        tenant=tenant,
        collection=known.id,
        space=number,
        job=job.id,
        run=job.run,
        listed_ns=time.time_ns(),
    )
