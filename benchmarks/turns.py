"""Two tenants share one ingest runner: how long does a job of 5 documents wait behind one of 20,000 files?

The small job is enqueued when the large one has stored a tenth of its documents. The memory is that of the runner's
process: before the jobs, at its peak, and 5 s after the last job. The hashing embedder loads no model.

    python -m benchmarks.turns
    python -m benchmarks.turns --files 2000
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import UUID

import psutil

from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core.config import Settings
from rag_core.settings import load_settings
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import IngestRequest, PushedDocument, Queue

LARGE, SMALL = "tenant-large", "tenant-small"
SMALL_DOCUMENTS = 5
WORK = """
import sys
from jobs.worker import Worker
from rag_core.config import Settings
Worker(Settings.model_validate_json(sys.argv[1])).run()
"""
TURNS = "select count(*) from rag.job_events where job_id = %s and stage = 'job' and status = 'started'"
MEGABYTE = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=20_000)
    count = parser.parse_args().files
    print(heading())
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        store = Postgres.open(dsn)
        settings = load_settings(overrides=[f"store.url={dsn}", "embedding.type=hashing"], environment={})
        folder = write_files(scratch / "docs", count)
        command = [sys.executable, "-c", WORK, settings.model_dump_json()]
        with subprocess.Popen(command, cwd=scratch) as worker:
            try:
                measure(store, settings, folder, count, worker.pid)
            finally:
                worker.kill()


def measure(store: Postgres, settings: Settings, folder: Path, count: int, worker: int) -> None:
    warm_up = enqueue(store, settings, LARGE, documents=[PushedDocument(id="warm.md", body=b"A warm text.")])
    wait_until_stored(store, LARGE, warm_up, 1)
    before, ended = memory(worker), Event()
    peaks = [before]
    watch = Thread(target=lambda: [peaks.append(memory(worker)) for _ in iter(lambda: ended.wait(0.1), True)])
    watch.start()
    started = time.perf_counter()
    large = enqueue(store, settings, LARGE, locations=(str(folder),))
    wait_until_stored(store, LARGE, large, count // 10)
    documents = [PushedDocument(id=f"{n}.md", body=f"Text number {n}.".encode()) for n in range(SMALL_DOCUMENTS)]
    asked = time.perf_counter()
    small = enqueue(store, settings, SMALL, documents=documents)
    stored_before = progress(store, LARGE, large)["completed"]
    status = wait_until_ended(store, SMALL, small)
    wait = time.perf_counter() - asked
    meanwhile = progress(store, LARGE, large)["completed"] - stored_before
    stored = progress(store, SMALL, small)["completed"]
    print(
        f"small job: {status} with {stored} documents after {wait:.1f} s; the large one stored {meanwhile:,} meanwhile"
    )
    status = wait_until_ended(store, LARGE, large)
    total = time.perf_counter() - started
    with store.connect("rag_worker") as connection:
        (turns,) = connection.execute(TURNS, (large,)).fetchone() or (0,)
    stored = progress(store, LARGE, large)["completed"]
    print(f"large job: {status} with {stored:,} documents in {total:.1f} s and {turns} turns")
    time.sleep(5)
    ended.set()
    watch.join()
    print(
        f"memory of the runner: {before:.0f} MB before, {max(peaks):.0f} MB at its peak, {memory(worker):.0f} MB after"
    )


def write_files(folder: Path, count: int) -> Path:
    for number in range(count):
        path = folder / str(number // 1_000) / f"{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Note {number}\n\nThe gate {number} is {number % 97} metres wide, and opens at noon.\n")
    return folder


def enqueue(
    store: Postgres,
    settings: Settings,
    tenant: str,
    documents: Sequence[PushedDocument] = (),
    locations: tuple[str, ...] = (),
) -> UUID:
    recorded = settings.model_dump(mode="json", exclude={"store", "tenant", "telemetry"})
    request = IngestRequest(
        collection="default", profile="default", settings=recorded, documents=tuple(documents), locations=locations
    )
    with store.connect() as connection:
        return Queue(connection, tenant).enqueue(request).job_id


def progress(store: Postgres, tenant: str, job: UUID) -> dict[str, int]:
    with store.connect() as connection:
        return Ledger(connection, tenant).progress(job)


def wait_until_stored(store: Postgres, tenant: str, job: UUID, documents: int) -> None:
    while progress(store, tenant, job)["completed"] < documents:
        time.sleep(0.1)


def wait_until_ended(store: Postgres, tenant: str, job: UUID) -> str:
    while True:
        with store.connect() as connection:
            row: dict[str, Any] = Ledger(connection, tenant).job(str(job))
        if row["finished_at"]:
            return str(row["status"])
        time.sleep(0.1)


def memory(process: int) -> float:
    """The memory of the process and of its children, in megabytes."""
    parent = psutil.Process(process)
    return sum(each.memory_info().rss for each in [parent, *parent.children(recursive=True)]) / MEGABYTE


if __name__ == "__main__":
    main()
