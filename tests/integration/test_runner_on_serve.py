"""The ingest runner as a deployment of a real Ray Serve."""

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import quiet_serve  # noqa: F401
from trees import hashing_settings, read_tree, violations

from rag_core.config import Settings
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import IngestRequest, PushedDocument, Queue
from rag_core.types import DEFAULT_TENANT
from serve.ingest_runner import runner_app

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of Ray's own making
]

PATIENCE = 90.0
SLEEPING = {"type": "python", "object": "killing:Sleeping"}


@pytest.fixture
def settings(store: Postgres) -> Settings:
    return hashing_settings(f"store.url={store.dsn}")


@pytest.fixture
def runner(settings: Settings, ray_cluster: None) -> Iterator[None]:
    from ray import serve

    serve.start(proxy_location="Disabled")
    serve.run(runner_app(settings), name="runner", route_prefix=None)
    yield
    serve.shutdown()  # type: ignore[no-untyped-call]


def enter(store: Postgres, settings: Settings, collection: str, **changed: Any) -> UUID:
    frozen = {**settings.model_dump(mode="json", exclude={"store", "tenant"}), **changed}
    pushed = tuple(PushedDocument(id=f"{n}.md", body=f"# {n}\n\nText {n} {collection}.".encode()) for n in range(3))
    request = IngestRequest(collection=collection, profile="default", settings=frozen, documents=pushed)
    with store.connect() as connection:
        return Queue(connection, DEFAULT_TENANT).enqueue(request).job_id


def job(store: Postgres, id: UUID) -> dict[str, Any]:
    with store.connect() as connection:
        return Ledger(connection, DEFAULT_TENANT).job(str(id))


def job_in(store: Postgres, id: UUID, *statuses: str) -> dict[str, Any]:
    """Waits until the job has one of the statuses, and returns its row."""
    end = time.monotonic() + PATIENCE
    while (row := job(store, id))["status"] not in statuses:
        assert time.monotonic() < end
        time.sleep(0.05)
    return row


def test_jobs_are_done_in_the_replica_or_on_the_cluster_and_given_back_when_it_is_shut_down(
    store: Postgres, settings: Settings, runner: None
) -> None:
    from ray import serve

    for collection, inline_documents in (("in-the-replica", 4000), ("on-the-cluster", 0)):
        ingestion = {**settings.ingestion.model_dump(), "inline_documents": inline_documents, "ray_from_cpus": 1}
        id = enter(store, settings, collection, ingestion=ingestion)
        row = job_in(store, id, "completed", "failed")
        assert (row["status"], row["reason"]) == ("completed", None)
        assert read_tree(store, collection).statuses() == {
            "0.md": "completed",
            "1.md": "completed",
            "2.md": "completed",
        }
    assert violations(store) == []

    id = enter(store, settings, "asleep", embedding=SLEEPING)
    job_in(store, id, "running")
    serve.delete("runner")
    given_back = job(store, id)
    assert (given_back["status"], given_back["attempts"]) == ("queued", 0)
    assert read_tree(store, "asleep").documents == {}
