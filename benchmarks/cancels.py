"""Cancelled syncs: when does the work stop, what does the ledger say, and when is the source free?

A sync is cancelled, as `rag jobs cancel` and HTTP do it, or interrupted, as Ctrl-C does it, at several moments. The
embedder only sleeps, so that a batch takes the same time on every machine. Afterwards a second sync processes the rest.

    python -m benchmarks.cancels
    python -m benchmarks.cancels --runners inline --documents 400
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core.models.encoders.tokens import WordTokenizer
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.types import DEFAULT_TENANT, Matrix, Space

MOMENTS = (0.0, 0.2, 0.6)
"""The shares of the documents that are stored when the sync is cancelled; at 0, the job has just begun."""
WAYS = ("cancel", "Ctrl-C")
SLEEP = 0.25
"""Seconds that a text takes; a document is one text."""
BATCH = 16
LIMIT = 120.0
"""Seconds after which a sync that has not stopped is killed."""
RESTORE_INTERRUPT = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)
LOCKS = "select count(*) from pg_locks where locktype = 'advisory' and objsubid = 1 and granted"
ITEMS = "select status, count(*) from rag.job_items where job_id = %s group by status order by status"


class SlowEmbedder:
    """An embedder that sleeps, and then gives all texts the same vector."""

    space = Space(model="slow", dimension=8, window=512, fingerprint="slow")
    tokenizer = WordTokenizer()

    def embed(self, texts: Sequence[str]) -> Matrix:
        time.sleep(SLEEP * len(texts))
        return np.full((len(texts), 8), 8**-0.5, np.float32)


@dataclass(frozen=True)
class Case:
    runner: str
    way: str
    moment: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=160)
    parser.add_argument("--embedder", default="benchmarks.cancels:SlowEmbedder", help="the class, as MODULE:CLASS")
    parser.add_argument("--runners", nargs="+", default=["inline", "ray"])
    arguments = parser.parse_args()
    print(heading())
    print(f"a batch has {BATCH} documents and takes {BATCH * SLEEP:g} s")
    print("runner  way     stored  stopped s  batches  free s  job        exit  documents; of a second sync")
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        os.environ["RAG_HOME"] = str(scratch)
        folder = write_documents(scratch / "docs", arguments.documents)
        store = Postgres.open(dsn)
        for runner in arguments.runners:
            for way in WAYS:
                for moment in MOMENTS:
                    measure(store, folder, Case(runner, way, moment), arguments.documents, arguments.embedder)


def write_documents(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.md").write_text(f"Document {number} has one text.\n")
    return folder


def measure(store: Postgres, folder: Path, case: Case, count: int, embedder: str) -> None:
    collection = f"{case.runner}-{case.way}-{case.moment}".lower()
    process = start_sync(store, folder, case.runner, collection, embedder)
    with store.connect("rag_worker") as connection:
        ledger = Ledger(connection, DEFAULT_TENANT)
        job = wait_for_job(ledger, collection, round(case.moment * count), process)
        asked = time.time()
        if case.way == "cancel":
            ledger.end(job["id"], "cancelled", "by a benchmark")
        else:
            process.send_signal(signal.SIGINT)
        free = stopped = 0.0
        while not (free and stopped):
            (locks,) = connection.execute(LOCKS).fetchone() or (0,)
            free = free or (time.time() - asked if not locks else 0.0)
            stopped = stopped or (time.time() - asked if process.poll() is not None else 0.0)
            if time.time() - asked > LIMIT and not stopped:
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.02)
        items = dict(connection.execute(ITEMS, (job["id"],)).fetchall())
        status = ledger.job(str(job["id"]))["status"]
    rest = start_sync(store, folder, "inline", collection, embedder, "--dry-run", "--json").communicate()[0]
    print(
        f"{case.runner:7} {case.way:7} {items.get('completed', 0):6} {stopped:10.2f} {stopped / (BATCH * SLEEP):8.2f} "
        f"{free:7.2f}  {status:10} {process.returncode:4}  {items}; {json.loads(rest)['documents']['added']} left",
        flush=True,
    )


def start_sync(
    store: Postgres, folder: Path, runner: str, collection: str, embedder: str, *more: str
) -> "subprocess.Popen[bytes]":
    settings = [f"ingestion.group={BATCH}", f"embedding={{type: python, object: '{embedder}'}}"]
    options = ["--collection", collection, "--runner", runner, "--quiet", *more]
    options += [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "rag_cli", "ingest", str(folder), "--store", store.dsn, *options]
    return subprocess.Popen(
        [sys.executable, "-c", RESTORE_INTERRUPT, *command],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def wait_for_job(
    ledger: Ledger, collection: str, documents: int, process: "subprocess.Popen[bytes]"
) -> Mapping[str, Any]:
    """The running job of the collection, when it has stored this number of documents."""
    while process.poll() is None:
        jobs: Sequence[Mapping[str, Any]] = [job for job in ledger.jobs(1) if job["collection"] == collection]
        if jobs and ledger.progress(jobs[0]["id"])["completed"] >= documents:
            return jobs[0]
        time.sleep(0.05)
    raise SystemExit("the sync ended before it could be cancelled: use more --documents")


if __name__ == "__main__":
    main()
