"""Memory of a sync at its peak: a corpus and one four times as large, one large text, many tiny files, a huge one.

Every case runs in a fresh process, with the hashing embedder, so that neither peaks nor a model add up. Counted is that
process with all it starts, also Ray's own, without Postgres; what processes share counts once (PSS), and so does the
object store. Looking at them takes CPU: unwatched, more documents are done in a second.

    python -m benchmarks.memory
    python -m benchmarks.memory --runner inline --documents 300 --tiny 5000
"""

import argparse
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from uuid import uuid4

from benchmarks.corpus import BREAK, passages
from benchmarks.machine import heading
from benchmarks.processes import Peak, memory_watched
from benchmarks.scratch import scratch_folder, server_in
from jobs.ray_runner import RayRunner
from rag_core.config import Settings
from rag_core.ingestion.report import SyncReport
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.wiring.ingestion import build_inline_runner, build_sync

RUNNERS = {"inline": ["inline"], "ray": ["ray"], "both": ["inline", "ray"]}
TIMES = 4
PASSAGES_A_DOCUMENT = 8
TEXT_BYTES, HUGE_BYTES = 20_000_000, 300_000_000
TEXT_PASSAGES = 80_000
FILES_A_FOLDER = 1_000


@dataclass(frozen=True)
class Bench:
    dsn: str
    settings: Settings
    scratch: Path
    runners: Sequence[str]

    def corpus(self, documents: int) -> None:
        """By how much the peak grows with the corpus is what shows whether memory is flat."""
        small = self.measured(f"{documents:,} documents", partial(_write_documents, documents))
        large = self.measured(f"{TIMES * documents:,} documents", partial(_write_documents, TIMES * documents))
        for runner, before, after in zip(self.runners, small, large, strict=True):
            print(f"growth    {runner:6}  {after.processes / before.processes - 1:+.1%}")

    def measured(self, name: str, write: Callable[[Path], None]) -> list[Peak]:
        """One peak a runner."""
        folder = self.scratch / name.replace(" ", "-")
        folder.mkdir()
        write(folder)
        return [self._peak(name, folder, runner) for runner in self.runners]

    def _peak(self, name: str, folder: Path, runner: str) -> Peak:
        settings = self.settings.model_copy(update={"tenant": f"memory-{uuid4().hex}"})
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            peak, report = fresh.submit(_synced, settings, self.dsn, folder, runner).result()
        seconds = report.seconds["total"] - report.seconds["start"]
        print(
            f"memory    {runner:6}  {name:18} {peak.processes:6.0f} MB, object store {peak.object_store:4.0f} MB;"
            f" {report.chunks['embedded']} chunks, {seconds:.2f} s, {report.rate['documents_per_second']} documents/s"
        )
        for failure in report.failures:
            print(f"          {failure['status']}: {failure['uri']}  {failure['stage']}: {failure['reason']}")
        return peak


def main() -> None:
    arguments = _arguments()
    settings = load_settings(overrides=["embedding.type=hashing"], environment={})
    print(f"{heading()}\n{settings.pipeline_version}")
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        bench = Bench(dsn, settings, scratch, RUNNERS[arguments.runner])
        bench.corpus(arguments.documents)
        bench.measured("one text of 20 MB", _write_text)
        bench.measured(f"{arguments.tiny:,} tiny files", partial(_write_tiny, arguments.tiny))
        bench.measured("a file of 300 MB", _write_huge)


def _synced(settings: Settings, dsn: str, folder: Path, runner: str) -> tuple[Peak, SyncReport]:
    job = build_sync(settings, Postgres.open(dsn), [str(folder)])
    with memory_watched([os.getpid()]) as peak:
        report = job.run(RayRunner(settings) if runner == "ray" else build_inline_runner(settings))
    return peak, report


def _write_documents(count: int, folder: Path) -> None:
    texts = passages(count * PASSAGES_A_DOCUMENT)
    for number in range(count):
        own = texts[number * PASSAGES_A_DOCUMENT : (number + 1) * PASSAGES_A_DOCUMENT]
        (folder / f"{number}.md").write_text(BREAK.join([f"# Document {number}", *own]))


def _write_text(folder: Path) -> None:
    """As much as `limits.text_mb` lets in."""
    (folder / "large.txt").write_text(BREAK.join(passages(TEXT_PASSAGES))[:TEXT_BYTES])


def _write_tiny(count: int, folder: Path) -> None:
    for number in range(count):
        own = folder / str(number // FILES_A_FOLDER)
        own.mkdir(exist_ok=True)
        (own / f"{number}.txt").write_text(f"Pump {number} was looked at, and turned {number % 97} times.")


def _write_huge(folder: Path) -> None:
    """A hole: it is refused by its size, and nobody reads it."""
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(HUGE_BYTES)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", choices=RUNNERS, default="both")
    parser.add_argument("--documents", type=int, default=1_500, help="of the smaller corpus")
    parser.add_argument("--tiny", type=int, default=100_000, help="so many tiny files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
