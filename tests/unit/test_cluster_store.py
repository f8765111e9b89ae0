"""The store of a job on a Ray cluster of several nodes."""

from uuid import UUID

import pytest
import ray

from jobs import ray_runner
from jobs.ray_connection import UNLIMITED
from jobs.ray_runner import _check_cluster
from rag_core.errors import StoreError
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import WriteTarget


@pytest.mark.parametrize("dsn", ["host=/run/postgresql dbname=rag", "env:RAG_DSN"])
def test_a_store_on_a_socket_is_refused_including_one_that_a_reference_names(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_DSN", "host=/run/postgresql dbname=rag")
    monkeypatch.setattr(ray, "cluster_resources", dict)
    monkeypatch.setattr(ray_runner, "list_nodes", lambda: [None, None])
    target = WriteTarget(
        postgres=Postgres(dsn),
        tenant="t",
        collection=1,
        space=1,
        job=UUID(int=1),
        run=1,
        listed_ns=1,
        fence=1,
    )
    with pytest.raises(StoreError, match="serves one host"):
        _check_cluster(UNLIMITED, target, {}, shared_folders=False)
