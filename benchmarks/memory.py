"""Peak memory of a sync: a corpus, one four times as large, one large text, many tiny files, and a huge file.

Every case runs in a new process with the hashing embedder, so that peaks do not add up and no model counts. The memory
is that of this process and of all processes that it starts, including Ray's own, but not Postgres. Shared pages and the
object store count once (PSS). The measurement takes CPU: without it, a sync processes more documents per second.

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
from benchmarks.processes import Peak, watch_memory
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
        """Prints how much the peak grows if the corpus is `TIMES` as large."""
        small = self.measure(f"{documents:,} documents", partial(_write_documents, documents))
        large = self.measure(f"{TIMES * documents:,} documents", partial(_write_documents, TIMES * documents))
        for runner, before, after in zip(self.runners, small, large, strict=True):
            print(f"growth    {runner:6}  {after.processes / before.processes - 1:+.1%}")

    def measure(self, name: str, write: Callable[[Path], None]) -> list[Peak]:
        """One peak per runner, of a sync of the files that `write` makes."""
        folder = self.scratch / name.replace(" ", "-")
        folder.mkdir()
        write(folder)
        return [self._peak(name, folder, runner) for runner in self.runners]

    def _peak(self, name: str, folder: Path, runner: str) -> Peak:
        settings = self.settings.model_copy(update={"tenant": f"memory-{uuid4().hex}"})
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            peak, report = fresh.submit(_sync, settings, self.dsn, folder, runner).result()
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
        bench.measure("one text of 20 MB", _write_text)
        bench.measure(f"{arguments.tiny:,} tiny files", partial(_write_tiny, arguments.tiny))
        bench.measure("a file of 300 MB", _write_huge)


def _sync(settings: Settings, dsn: str, folder: Path, runner: str) -> tuple[Peak, SyncReport]:
    job = build_sync(settings, Postgres.open(dsn), [str(folder)])
    with watch_memory([os.getpid()]) as peak:
        report = job.run(RayRunner(settings) if runner == "ray" else build_inline_runner(settings))
    return peak, report


def _write_documents(count: int, folder: Path) -> None:
    texts = passages(count * PASSAGES_A_DOCUMENT)
    for number in range(count):
        document_passages = texts[number * PASSAGES_A_DOCUMENT : (number + 1) * PASSAGES_A_DOCUMENT]
        (folder / f"{number}.md").write_text(BREAK.join([f"# Document {number}", *document_passages]))


def _write_text(folder: Path) -> None:
    """Writes a text of the maximum length that `limits.text_mb` permits."""
    (folder / "large.txt").write_text(BREAK.join(passages(TEXT_PASSAGES))[:TEXT_BYTES])


def _write_tiny(count: int, folder: Path) -> None:
    for number in range(count):
        subfolder = folder / str(number // FILES_A_FOLDER)
        subfolder.mkdir(exist_ok=True)
        (subfolder / f"{number}.txt").write_text(f"Pump {number} was looked at, and turned {number % 97} times.")


def _write_huge(folder: Path) -> None:
    """Writes a sparse file: its size alone makes the sync refuse it, so it is never read."""
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(HUGE_BYTES)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", choices=RUNNERS, default="both")
    parser.add_argument("--documents", type=int, default=1_500, help="documents of the smaller corpus")
    parser.add_argument("--tiny", type=int, default=100_000, help="number of tiny files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
