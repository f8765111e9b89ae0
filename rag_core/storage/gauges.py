"""Counts of all tenants' rows, for gauges."""

from collections.abc import Mapping

import psycopg

from rag_core.errors import StoreError
from rag_core.storage.postgres import Postgres

DEPTHS = """
select tenant, status, count(*) from jobs where status in ('queued', 'running') group by tenant, status
order by tenant, status"""


def queue_depths(postgres: Postgres) -> Mapping[tuple[str, str], int]:
    """Jobs that have not ended, by tenant and status; of statuses that no job has there is nothing.

    A login without roles sees no tenant's rows. StoreError if the store cannot be asked.
    """
    try:
        with postgres.connect("rag_worker") as connection:
            return {(tenant, status): count for tenant, status, count in connection.execute(DEPTHS)}
    except psycopg.OperationalError as error:
        raise StoreError(f"lost the store: {error}") from error
