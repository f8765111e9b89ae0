"""The store as one machine reaches it: schema, encryption, latency, and the difference of the clocks."""

import time
from dataclasses import dataclass

from rag_core.storage import schema
from rag_core.storage.postgres import Postgres

READ_CLOCK = "select extract(epoch from clock_timestamp())::float8"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReach:
    """`latency` is the time of one statement, `clock_lead` that by which this machine's clock is ahead; in seconds.

    `clock_lead` is accurate to half of the latency.
    """

    schema_version: int
    newest_version: int
    is_encrypted: bool
    latency: float
    clock_lead: float


def measure_reach(url: str) -> StoreReach:
    """Connects to the store without changing it. Raises ConfigError or StoreError as `Postgres.open_unmigrated`."""
    with Postgres.open_unmigrated(url).connect() as connection:
        schema_version, newest_version = schema.read_versions(connection)
        sent = time.time()
        row = connection.execute(READ_CLOCK).fetchone()
        received = time.time()
        return StoreReach(
            schema_version=schema_version,
            newest_version=newest_version,
            is_encrypted=connection.pgconn.ssl_in_use,
            latency=received - sent,
            clock_lead=(sent + received) / 2 - (row[0] if row else 0.0),
        )
