"""A job finishes with the profile that it was accepted with, even if its runner and the file change meanwhile."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from commands import Rag, rag_in_process
from fakes.serving import serve_profiles
from trees import read_tree, violations
from waiting import wait_until
from workers import run_worker

from rag_cli.server_client import read_ended_job, request_retrieval
from rag_core.config import Settings
from rag_core.settings import load_settings
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import IngestRequest, PushedDocument, Queue
from rag_core.types import DEFAULT_TENANT
from rag_core.wiring.ingestion import record_settings
from serve.profiles import ServedProfiles
from serve.services import open_shared_resources

pytestmark = pytest.mark.postgres

FIRST = (
    "version: 1.0.0\nembedding: {type: hashing, dimension: 64}\nchunking: {type: sentences, tokens: 16, overlap: 0}\n"
)
SECOND = (
    "version: 2.0.0\nembedding: {type: hashing, dimension: 64}\nchunking: {type: fixed, unit: chars, size: 400}\n"
    'metadata: {set: {edition: "2"}}\n'
)
TEXT = "# Keys\n\nThe keys are replaced every 45 days. The harbour master signs the list. Copies are kept for a year.\n"


def load(store: Postgres, folder: Path, text: str) -> Settings:
    """Writes the text to the settings file, and returns its settings."""
    file = folder / "rag.yaml"
    file.write_text(text)
    return load_settings(file, None, [f"store.url={store.dsn}", "parsing.sandbox=false", "answering.budget=none"], {})


def enqueue(store: Postgres, settings: Settings, id: str) -> UUID:
    document = PushedDocument(id=id, body=TEXT.encode(), media_type="text/markdown")
    request = IngestRequest(
        collection="default",
        profile=settings.profile,
        settings=record_settings(settings),
        documents=(document,),
    )
    with store.connect() as connection:
        return Queue(connection, DEFAULT_TENANT).enqueue(request).job_id


def run_to_the_end(store: Postgres, settings: Settings, job: UUID) -> dict[str, Any]:
    """Runs a worker with these settings until the job has ended, and returns the job."""

    def row() -> dict[str, Any]:
        with store.connect() as connection:
            return Ledger(connection, DEFAULT_TENANT).job(str(job))

    with run_worker(settings):
        wait_until(lambda: row()["status"] in ("completed", "failed"))
    return row()


@pytest.mark.slow
def test_a_queued_job_keeps_its_profile_when_the_file_changes_and_the_runner_restarts(
    store: Postgres, tmp_path: Path
) -> None:
    first = load(store, tmp_path, FIRST)
    job = enqueue(store, first, "early.md")
    second = load(store, tmp_path, SECOND)
    later = enqueue(store, second, "late.md")
    rows = [run_to_the_end(store, second, id) for id in (job, later)]
    assert [(row["status"], row["settings"]["version"]) for row in rows] == [
        ("completed", "1.0.0"),
        ("completed", "2.0.0"),
    ]
    tree = read_tree(store)
    assert (len(tree.texts("early.md")), len(tree.texts("late.md"))) == (2, 1)
    metadata = {uri.rpartition("/")[2]: document["metadata"] for uri, document in tree.documents.items()}
    assert ("edition" in metadata["early.md"], metadata["late.md"]["edition"]) == (False, "2")
    assert violations(store) == []


@pytest.mark.slow
def test_jobs_replies_and_the_list_of_profiles_name_the_version(
    store: Postgres, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = load(store, tmp_path, FIRST)
    job = enqueue(store, first, "keys.md")
    run_to_the_end(store, first, job)
    second = load(store, tmp_path, SECOND)
    services = open_shared_resources(second).build_services(second)
    with serve_profiles(ServedProfiles(services)) as url:
        job_row = read_ended_job(url, str(job))
        assert (job_row.profile_version, job_row.pipeline_version) == ("1.0.0", first.pipeline_version)
        assert first.pipeline_version.startswith("default:v1.0.0+")
        retrieval = request_retrieval(url, {"query": "keys"})
        assert (retrieval.profile.version, retrieval.pipeline_version) == ("2.0.0", second.pipeline_version)
    rag: Rag = rag_in_process(capfd)
    ran = rag("jobs", "show", job, "--store", store.dsn, "--json")
    assert ran.json["profile_version"] == "1.0.0"
