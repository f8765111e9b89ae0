"""What does the audit cost a write?

Each kind of change is made with its row in the audit and without, in turns, so that a busy machine slows down both. The
ratio compares the medians of the seconds of one change. Then several writers of one tenant, which wait for each other
at the end of the chain, write with and without. Then full batches of reads are written, and the chain is verified.

    python -m benchmarks.audit
    python -m benchmarks.audit --changes 200 --writers 8
"""

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from statistics import median, quantiles
from types import ModuleType
from uuid import uuid4

from psycopg import Connection

from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core.storage import keys, queue, replies
from rag_core.storage.audit import Change, Entry, append_entries
from rag_core.storage.audit_reading import Audit
from rag_core.storage.keys import Keys
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import IngestRequest, PushedDocument, Queue
from rag_core.storage.replies import Feedback, Replies, StoredReply
from serve.audit import BATCH

TENANT = "tenant"
MODULES: tuple[ModuleType, ...] = (keys, queue, replies)
ROUND = 10
"""Changes that are made in a row before the other variant has its turn."""
REPLY = StoredReply(
    id="ans_1",
    question="q",
    standalone="q",
    collection="default",
    profile="default",
    pipeline_version="",
    model="",
    chunk_ids=(),
    cited_ids=(),
    verdict="unchecked",
    confidence=None,
    finish="stop",
    prompt_tokens=0,
    completion_tokens=0,
    cached_tokens=0,
    seconds=0,
)

_numbers = count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=500, help="changes of each kind, with and without the audit")
    parser.add_argument("--writers", type=int, default=8)
    arguments = parser.parse_args()
    print(heading())
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        store = Postgres.open(dsn)
        with store.connect() as connection:
            Replies(connection, TENANT).add([REPLY], timeout=60)
            for name, change in CHANGES.items():
                compare(name, lambda change=change: time_changes(connection, change, ROUND), arguments.changes // ROUND)
        rounds = max(4, arguments.changes // 100)
        compare(f"feedback, {arguments.writers} writers", lambda: time_writers(store, arguments.writers), rounds)
        time_batches(store)
        verify(store)


def compare(name: str, measure: Callable[[], list[float]], rounds: int) -> None:
    """Prints the medians of the milliseconds of one change, and their ratio, from `rounds` turns of each variant."""
    measure()
    audited: list[float] = []
    plain: list[float] = []
    for _ in range(rounds):
        audited += measure()
        with without_audit():
            plain += measure()
    shown = [
        f"{1000 * median(seconds):.2f} (p95 {1000 * quantiles(seconds, n=20)[-1]:.2f})" for seconds in (audited, plain)
    ]
    ratio = median(audited) / median(plain)
    print(f"{name}: {shown[0]} ms with its row, {shown[1]} ms without, ratio {ratio:.2f}, {len(plain)} changes each")


def time_changes(connection: Connection, change: Callable[[Connection], object], changes: int) -> list[float]:
    seconds = []
    for _ in range(changes):
        started = time.perf_counter()
        change(connection)
        seconds.append(time.perf_counter() - started)
    return seconds


def time_writers(store: Postgres, writers: int) -> list[float]:
    """Each writer makes `ROUND` changes over its own connection."""

    def write(_: int) -> list[float]:
        with store.connect() as connection:
            return time_changes(connection, give_feedback, ROUND)

    with ThreadPoolExecutor(writers) as threads:
        return [seconds for times in threads.map(write, range(writers)) for seconds in times]


def create_key(connection: Connection) -> None:
    Keys(connection, TENANT).create({"retrieve:read"})


def enqueue(connection: Connection) -> None:
    document = PushedDocument(id=f"{next(_numbers)}.md", body=b"A text.")
    request = IngestRequest(collection="default", profile="default", settings={}, documents=(document,))
    Queue(connection, TENANT).enqueue(request, str(uuid4()))


def give_feedback(connection: Connection) -> None:
    Replies(connection, TENANT).add_feedback(Feedback(answer_id="ans_1", rating=1))


CHANGES = {"feedback": give_feedback, "key": create_key, "ingest of one document": enqueue}


@contextmanager
def without_audit() -> Iterator[None]:
    """Leaves out the rows of changes in the block."""
    records = [module.record for module in MODULES]
    for module in MODULES:
        module.record = _ignore_change
    try:
        yield
    finally:
        for module, record in zip(MODULES, records, strict=True):
            module.record = record


def _ignore_change(connection: Connection, tenant: str, change: Change) -> None:
    pass


def time_batches(store: Postgres) -> None:
    """Prints how long changes wait for a full batch of reads."""
    content = {"operation": "retrieve", "documents": [str(uuid4()) for _ in range(10)], "duration_ms": 1.5}
    entries = [Entry(tenant=TENANT, user=f"user-{number % 20}", content=content) for number in range(BATCH)]
    with store.connect() as connection:
        seconds = time_changes(connection, lambda connection: append_entries(connection, TENANT, entries, 60), ROUND)
    print(f"a batch of {BATCH} reads: {1000 * median(seconds):.0f} ms, {BATCH / median(seconds):,.0f} rows a second")


def verify(store: Postgres) -> None:
    with store.connect() as connection:
        started = time.perf_counter()
        result = Audit(connection, TENANT).verify()
        seconds = time.perf_counter() - started
    state = "broken" if result.broken else "intact"
    print(f"verified: {result.end.n:,} rows, {state}, {result.end.n / seconds:,.0f} rows a second")


if __name__ == "__main__":
    main()
