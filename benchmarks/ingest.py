"""The sync against a hand-written floor on the same files: read, parse, split, encode, one COPY, in one process.

Machines are noisy, so compare the ratios of one run, not the seconds of two. By default the demo's corpus, copied until
there are enough files, with the hashing embedder, so that everything but encoding shows.

    python -m benchmarks.ingest
    python -m benchmarks.ingest FOLDER --set embedding.type=bert --set embedding.model=all-MiniLM-L6-v2
"""

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
from pgvector import HalfVector
from pgvector.psycopg import register_vector

from jobs.runner import RayRunner, start_ray
from rag_core.build.embedding import encoder
from rag_core.build.ingestion import inline_runner, preparation, source, sync
from rag_core.config import Settings
from rag_core.ingestion.report import Report
from rag_core.settings import load_settings
from rag_core.storage import embedded
from rag_core.storage.postgres import Postgres
from rag_core.types import Draft

ROOT = Path(__file__).parents[1]
FILES = 2_000
DELTA = 0.01
FLOOR_TABLE = "create temp table floor (document uuid, ordinal int, text text, embedding halfvec)"
FLOOR_COPY = "copy floor from stdin (format binary)"


@dataclass(frozen=True)
class Bench:
    postgres: Postgres
    settings: Settings
    folder: Path

    def floor(self) -> int:
        """Chunks; what somebody would write for one run, without deltas, ledger, tenants or retries."""
        files = source(self.settings, str(self.folder))
        prepare = preparation(self.settings, {0: files})
        drafts = [prepare(Draft(id=uuid4(), source=0, entry=entry, recipe="")) for entry in files.listing()]
        chunks = [chunk for draft in drafts for chunk in draft.chunks]
        vectors = encoder(self.settings.embedding).embed([chunk.embedded_text for chunk in chunks])
        with psycopg.connect(self.postgres.dsn) as connection:
            connection.execute(FLOOR_TABLE)
            register_vector(connection)
            with connection.cursor() as cursor, cursor.copy(FLOOR_COPY) as copy:
                copy.set_types(["uuid", "int4", "text", "halfvec"])
                for chunk, vector in zip(chunks, vectors, strict=True):
                    copy.write_row((chunk.document_id, chunk.ordinal, chunk.text, HalfVector(vector)))
        return len(chunks)

    def sync(self, tenant: str, on_ray: bool = False) -> Report:
        """Each tenant knows nothing of what another has embedded."""
        settings = self.settings.model_copy(update={"tenant": tenant})
        runner = RayRunner(settings) if on_ray else inline_runner(settings)
        return sync(settings, self.postgres, [str(self.folder)]).run(runner)


def main() -> None:
    arguments = _arguments()
    settings = load_settings(overrides=arguments.set or ["embedding.type=hashing"], environment={})
    with _scratch() as scratch:
        folder = Path(arguments.folder) if arguments.folder else _copies(scratch / "files", FILES)
        bench = Bench(Postgres.open(embedded.start(scratch / "postgres")), settings, folder)
        print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs; {settings.pipeline_version}")
        _compare(bench, arguments.rounds)
        if not arguments.folder:
            _delta(bench)
        embedded.stop(scratch / "postgres")


def _compare(bench: Bench, rounds: int) -> None:
    """Interleaved, because a machine's speed drifts; the median of the rounds."""
    start_ray()
    floors, inlines, rays = [], [], []
    for number in range(rounds):
        floors.append(_seconds(bench.floor))
        inlines.append(_seconds(lambda n=number: bench.sync(f"in-process-{n}")))
        report = bench.sync(f"on-ray-{number}", on_ray=True)
        rays.append(report.seconds["total"] - report.seconds["start"])
        stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in report.seconds.items())
        print(f"round {number + 1}: {report.documents['completed']} documents; on Ray: {stages}")
    floor = statistics.median(floors)
    for name, seconds in (
        ("floor", floor),
        ("in-process", _middle(inlines)),
        ("on Ray, without its start", _middle(rays)),
    ):
        print(f"cold      {name:28} {seconds:8.2f} s   {seconds / floor:5.2f} x floor")
    unchanged = _seconds(lambda: bench.sync("in-process-0"))
    print(f"unchanged {'in-process':28} {unchanged:8.2f} s   {unchanged / floor:5.2f} x floor")


def _delta(bench: Bench) -> None:
    files = sorted(path for path in bench.folder.rglob("*.md"))
    share = max(1, int(len(files) * DELTA))
    for path in files[:share]:
        path.write_text(path.read_text(errors="replace") + "\n\nA sentence was added here.\n")
    for path in files[share : 2 * share]:
        path.unlink()
        path.with_name(f"new-{path.name}").write_text(f"# {path.stem}\n\nA new document.\n")
    began = time.perf_counter()
    report = bench.sync("in-process-0")
    changes = {name: report.documents[name] for name in ("added", "changed", "deleted")}
    print(f"delta     {'in-process':28} {time.perf_counter() - began:8.2f} s   {changes}, chunks {dict(report.chunks)}")


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _middle(seconds: list[float]) -> float:
    return statistics.median(seconds)


def _copies(folder: Path, count: int) -> Path:
    """The demo's corpus again and again, each copy with its number in it, so that no text is stored twice."""
    number = 0
    while number * 50 < count:
        copy = folder / f"{number:03}"
        shutil.copytree(ROOT / "demo" / "corpus", copy)
        for path in copy.rglob("*.*"):
            if path.suffix in (".md", ".txt", ".html"):
                path.write_bytes(path.read_bytes().replace(b". ", f" ({number}). ".encode()))
        number += 1
    return folder


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rag-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="files of your own; else copies of the demo's corpus")
    parser.add_argument("--set", action="append", metavar="SECTION.KEY=VALUE", help="settings; default: hashing")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
