"""An upgrade of a store from the former version, while former gateways search it and a former job changes it.

The former version, unpacked from git, fills a store and puts it under load: 4 processes search without a pause, and one
replaces documents. The floor is the same load without an upgrade, in the same run. Then this version migrates the store
under the load. Afterwards it checks the invariants. Locks are sampled every few milliseconds.

    python -m benchmarks.upgrade --chunks 100000

The exit code is 1 if a search failed, or if an invariant is broken.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg

from benchmarks.former import FORMER, run_program, start_program, unpack_program
from benchmarks.json_lines import json_lines
from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core import open_knowledge_base
from rag_core.storage import schema
from rag_core.storage.fsck import find_violations
from rag_core.storage.postgres import Postgres

READERS = 4
SETTLE_SECONDS = 3.0
SAMPLE_SECONDS = 0.002
LOCKS = """
select l.pid, l.relation::regclass::text, l.granted and l.mode = 'AccessExclusiveLock',
  coalesce(extract(epoch from clock_timestamp() - l.waitstart), 0)::float
from pg_locks l join pg_class c on c.oid = l.relation
where c.relnamespace = 'rag'::regnamespace and (l.mode = 'AccessExclusiveLock' or not l.granted)"""


@dataclass
class LockSampler:
    """The longest wait for a lock of a table or an index, and the longest ACCESS EXCLUSIVE lock, in seconds."""

    dsn: str
    longest_wait: float = 0.0
    longest_lock: float = 0.0
    locked: set[str] = field(default_factory=set)
    samples: int = 0
    _since: dict[tuple[int, str], float] = field(default_factory=dict)

    @contextmanager
    def sample(self) -> Iterator[None]:
        ended = Event()
        thread = Thread(target=self._sample_until, args=(ended,))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _sample_until(self, ended: Event) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            while not ended.wait(SAMPLE_SECONDS):
                self._take(connection.execute(LOCKS).fetchall())

    def _take(self, rows: Sequence[tuple[int, str, bool, float]]) -> None:
        now = time.perf_counter()
        held = {(pid, relation) for pid, relation, is_exclusive, _ in rows if is_exclusive}
        self._since = {key: self._since.get(key, now) for key in held}
        self.locked |= {relation for _, relation in held}
        self.longest_lock = max(self.longest_lock, *(now - since for since in self._since.values()), 0.0)
        self.longest_wait = max(self.longest_wait, *(wait for _, _, _, wait in rows), 0.0)
        self.samples += 1


@dataclass(frozen=True)
class Window:
    """What happened between two times, from the lines of the load."""

    searches: Sequence[float]
    syncs: int
    errors: Sequence[str]


def main() -> None:
    arguments = _arguments()
    print(f"{heading()}; former version {FORMER}")
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        former = unpack_program(scratch / "former")
        began = time.perf_counter()
        run_program(former, "fill", dsn, str(arguments.chunks))
        print(f"filled by the former version in {time.perf_counter() - began:.0f} s; schema {_read_version(dsn)}")
        with _put_under_load(former, dsn, scratch) as files:
            floor, floor_locks = _observe(dsn, files, arguments.seconds, migrates=False)
            upgrade, upgrade_locks = _observe(dsn, files, arguments.seconds, migrates=True)
        _print_window("without an upgrade", floor, floor_locks)
        _print_window("with the upgrade", upgrade, upgrade_locks)
        violations = _check_store(dsn)
    raise SystemExit(bool(floor.errors or upgrade.errors or violations))


@contextmanager
def _put_under_load(former: Path, dsn: str, scratch: Path) -> Iterator[Sequence[Path]]:
    """Yields the files of the readers and, last, of the writer, when each has completed its first operation."""
    files = [scratch / f"reader-{n}" for n in range(READERS)] + [scratch / "writer"]
    with ExitStack() as processes:
        for file in files:
            kind = "change" if file.name == "writer" else "search"
            processes.enter_context(start_program(former, kind, dsn, str(file)))
        while not all(file.exists() and file.stat().st_size for file in files):
            time.sleep(0.1)
        yield files


def _observe(dsn: str, files: Sequence[Path], seconds: float, migrates: bool) -> tuple[Window, LockSampler]:
    began, sampler = time.time(), LockSampler(dsn)
    with sampler.sample():
        if migrates:
            time.sleep(SETTLE_SECONDS)
            started = time.perf_counter()
            schema.migrate(dsn, lambda migration, _: print(f"  {migration.name} ({migration.kind})"))
            print(f"migrated in {time.perf_counter() - started:.2f} s; schema {_read_version(dsn)}")
        time.sleep(max(0.0, seconds - (time.time() - began)))
    ended = time.time()
    *readers, writer = ([line for line in _complete_lines(file) if began <= line["at"] <= ended] for file in files)
    searches = [line for lines in readers for line in lines]
    errors = [line["error"] for line in (*searches, *writer) if line["error"]]
    return Window([line["seconds"] for line in searches], len(writer), errors), sampler


def _complete_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yields the lines of a file to which another process still writes."""
    try:
        yield from json_lines(file)
    except json.JSONDecodeError:
        return


def _print_window(name: str, window: Window, locks: LockSampler) -> None:
    cuts = statistics.quantiles(window.searches, n=100)
    print(
        f"{name}: {len(window.searches)} searches, {window.syncs} syncs, {len(window.errors)} failed; "
        f"ms p50 {1000 * cuts[49]:.1f}, p99 {1000 * cuts[98]:.1f}, max {1000 * max(window.searches):.1f}; "
        f"longest wait for a lock {1000 * locks.longest_wait:.0f} ms; longest ACCESS EXCLUSIVE lock "
        f"{1000 * locks.longest_lock:.0f} ms, of {', '.join(sorted(locks.locked)) or 'nothing'} "
        f"({locks.samples} samples)"
    )
    for error in window.errors[:3]:
        print(f"  {error}")


def _check_store(dsn: str) -> int:
    """Prints the broken invariants and whether this version searches the store. Returns the number of violations."""
    with open_knowledge_base(dsn, settings=["embedding.type=hashing", "embedding.dimension=384"]) as knowledge:
        hits = knowledge.search("gate1 tide2 lamp3", 5)
    with Postgres(dsn).connect("rag_worker") as connection:
        violations = find_violations(connection)
    print(f"this version finds {len(hits)} hits; fsck: {len(violations)} violations")
    return len(violations)


def _read_version(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        return schema.read_versions(connection)[0]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=30.0, help="of the load with, and as long without, an upgrade")
    return parser.parse_args()


if __name__ == "__main__":
    main()
