"""300 jobs of the queue, and workers that are killed while they run them."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from targets import superuser
from trees import hashing_settings, violations

from rag_core.config import Settings
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import IngestRequest, PushedDocument, Queue
from rag_core.types import DEFAULT_TENANT

pytestmark = [pytest.mark.postgres, pytest.mark.chaos]

JOBS, COLLECTIONS, WORKERS, KILLS = 300, 20, 4, 12
PATIENCE = 240.0
WORK = """
import sys
from jobs.worker import Worker
from rag_core.config import Settings
Worker(Settings.model_validate_json(sys.argv[1]), lease_seconds=2.0, poll_seconds=0.2).run()
"""
HOLDERS = """
select split_part(worker, ':', 2)::int from rag.jobs
where lease_until > clock_timestamp() and status in ('queued', 'running')"""
LEFT = "select count(*) from rag.jobs where status in ('queued', 'running')"
COUNTS = """
select (select count(*) from rag.documents), (select count(distinct uri) from rag.documents),
  (select count(*) from rag.job_items where status = 'completed'),
  (select sum((detail ->> 'completed')::int) from rag.job_events where stage = 'publish'),
  (select count(*) from rag.pushed_documents)"""


class Workers:
    """A fixed number of worker processes: `keep` replaces those that died."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.model_dump_json()
        self._processes: list[subprocess.Popen[bytes]] = []

    def keep(self) -> None:
        alive = [process for process in self._processes if process.poll() is None]
        self._processes = alive + [self._start() for _ in range(WORKERS - len(alive))]

    def kill(self, pid: int) -> None:
        for process in self._processes:
            if process.pid == pid:
                process.send_signal(signal.SIGKILL)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen([sys.executable, "-c", WORK, self._settings], env=environment)


@contextmanager
def run_workers(settings: Settings) -> Iterator[Workers]:
    workers = Workers(settings)
    try:
        yield workers
    finally:
        workers.end()


def enqueue_document(store: Postgres, settings: Settings, number: int, poison: bool) -> UUID:
    frozen = settings.model_dump(mode="json", exclude={"store", "tenant"})
    deadly = {"type": "python", "object": "killing:Killing"}
    request = IngestRequest(
        collection="poisoned" if poison else f"collection-{number % COLLECTIONS}",
        profile="default",
        settings={**frozen, "embedding": deadly} if poison else frozen,
        documents=(PushedDocument(id=f"{number}.md", body=f"# Note {number}\n\nText of {number}.".encode()),),
    )
    with store.connect() as connection:
        return Queue(connection, DEFAULT_TENANT).enqueue(request).job_id


@pytest.mark.timeout(300)
def test_300_jobs_whose_workers_are_killed_are_done_exactly_once_each_and_the_poison_is_a_dead_letter(
    store: Postgres,
) -> None:
    settings, draw = hashing_settings(f"store.url={store.dsn}", "parsing.sandbox=false"), random.Random(14)
    poison = draw.randrange(JOBS // 2)
    jobs = [enqueue_document(store, settings, number, number == poison) for number in range(JOBS)]
    kills, end = 0, time.monotonic() + PATIENCE
    with run_workers(settings) as workers, superuser(store) as watcher:
        while watcher.execute(LEFT).fetchone() != (0,) and time.monotonic() < end:
            workers.keep()
            time.sleep(draw.uniform(0.1, 0.6))
            holders = [row[0] for row in watcher.execute(HOLDERS)]
            if holders and kills < KILLS:
                workers.kill(draw.choice(holders))
                kills += 1
    with store.connect() as connection:
        rows = {job["id"]: job for job in Ledger(connection, DEFAULT_TENANT).jobs(limit=JOBS)}
    dead = rows.pop(jobs[poison])
    assert (dead["status"], dead["attempts"]) == ("failed", 3)
    assert dead["reason"].startswith("dead letter: it was started 3 times")
    assert [row["reason"] for row in rows.values() if row["status"] != "completed"] == []
    assert sum(row["attempts"] for row in rows.values()) > len(rows)
    assert kills == KILLS
    with superuser(store) as connection:
        assert connection.execute(COUNTS).fetchone() == (JOBS - 1, JOBS - 1, JOBS - 1, JOBS - 1, 1)
    assert violations(store) == []


def test_the_poison_of_this_folder_is_deadly(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "from killing import Killing; Killing().embed(['a'])"]
    assert subprocess.run(command, env=environment, cwd=tmp_path, check=False).returncode == -signal.SIGKILL
