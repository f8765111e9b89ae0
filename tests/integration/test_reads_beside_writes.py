"""A few hundred of the reads that `tests/chaos/test_reads.py` makes by the thousand."""

import pytest
from concurrent_reads import TENANTS, read_during_writes

from rag_core.storage.postgres import Postgres

pytestmark = pytest.mark.postgres


@pytest.mark.slow
def test_a_hybrid_read_during_writes_sees_one_version_of_its_tenant(store: Postgres) -> None:
    reads, merges = read_during_writes(store, n_reads=300, n_versions=5)
    assert [read.errors for read in reads if read.errors] == []
    assert merges > 0
    for tenant in TENANTS:
        assert len({read.version for read in reads if read.tenant == tenant}) > 1
