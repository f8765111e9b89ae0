"""Counts over the rows of all tenants, for gauges."""

from collections.abc import Mapping

from rag_core.storage.postgres import Postgres, translate_connection_errors

DEPTHS = """
select tenant, status, count(*) from jobs where status in ('queued', 'running') group by tenant, status
order by tenant, status"""


def queue_depths(postgres: Postgres) -> Mapping[tuple[str, str], int]:
    """The number of jobs that have not ended, by tenant and status. Statuses without jobs are missing.

    A login without the store's roles sees no rows. Raises StoreError if the store is unavailable.
    """
    with translate_connection_errors(), postgres.connect("rag_worker") as connection:
        return {(tenant, status): count for tenant, status, count in connection.execute(DEPTHS)}
