"""Hybrid reads for minutes during writes, and through a restart of Postgres."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from concurrent_reads import NOTES, PARTS, TENANTS, publish_first, read_during_writes, read_while
from hosts import Host

from rag_core.storage import embedded
from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.chaos, pytest.mark.postgres, pytest.mark.timeout(900)]

READS = 10_000
RECOVERY = 5.0
"""Seconds after Postgres answers: the pool's tries to connect are no more than four seconds apart."""


def test_ten_thousand_reads_during_writes_see_one_version_of_their_tenant_each(store: Postgres) -> None:
    began = time.monotonic()
    reads, merges = read_during_writes(store, READS, n_versions=20)
    assert len(reads) >= READS
    assert [read.errors for read in reads if read.errors] == []
    assert {read.chunks for read in reads} == {PARTS * n for n in (NOTES, NOTES - NOTES // 3, NOTES - NOTES // 6)}
    versions = [len({read.version for read in reads if read.tenant == tenant}) for tenant in TENANTS]
    print(f"{len(reads)} reads in {time.monotonic() - began:.0f} s, versions seen: {versions}, merges: {merges}")
    assert min(versions) > 1
    assert merges > 0


@pytest.mark.parametrize("downtime", [0.5, 17.0])
def test_a_restart_fails_reads_by_name_and_only_while_postgres_is_away(host: Host, downtime: float) -> None:
    store = Postgres.open(host.store.dsn)
    publish_first(store)
    with ThreadPoolExecutor() as threads:
        restarting = threads.submit(_restart, host, downtime)
        reads = read_while(store, lambda _: not restarting.done(), pause=0.05)
        stopped, started = restarting.result()
    failed = [round(read.ended - started, 1) for read in reads if read.errors]
    longest = max(read.ended - read.began for read in reads)
    print(f"{len(reads)} reads, away for {started - stopped:.1f} s, the longest read {longest:.1f} s")
    print(f"errors, in seconds after the start: {failed}")
    assert any(read.ended < stopped for read in reads)
    assert failed or longest > downtime
    assert all(stopped - started < ended < RECOVERY for ended in failed)
    assert {read.tenant for read in reads if read.began > started + RECOVERY} == set(TENANTS)


def _restart(host: Host, downtime: float) -> tuple[float, float]:
    """Returns the times of the stop and of the start. Waits some time before the stop and after the start."""
    time.sleep(2)
    stopped = time.monotonic()
    embedded.stop(host.home / "postgres")
    time.sleep(downtime)
    embedded.start(host.home / "postgres")
    started = time.monotonic()
    time.sleep(RECOVERY + 3)
    return stopped, started
