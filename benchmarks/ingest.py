"""The whole pipeline, in this process and on Ray, compared with (a) raw encode and (b) a hand-written floor.

(a) raw encode: the faster of the project's encoder and sentence-transformers encodes the distinct chunks of the same
files, sorted by length. It runs in one process per CPU with one thread each. Models are loaded before the clock starts.
(b) floor: hand-written code in one process, one step after the other: read, parse with the project's parsers, split,
encode with one thread per CPU, one COPY. The times to load models and to start Ray are shown separately.

Machines are noisy, so compare the ratios of one run, not the seconds of two. The default input is copies of the demo's
corpus. The default embedder is hashing, so that the times show everything except encoding. The input is copied first.

    python -m benchmarks.ingest
    python -m benchmarks.ingest FOLDER --jsonl corpus.jsonl --limit 1000
    python -m benchmarks.ingest FOLDER --set embedding.type=bert --set embedding.model=all-MiniLM-L6-v2
    python -m benchmarks.ingest --jsonl corpus.jsonl --gpus 1 \
        --set 'embedding={type: bert, model: all-MiniLM-L6-v2, device: cuda}'

With --gpus, each embedding actor has a GPU, and raw encode runs in one process, which has one thread per CPU to split
texts into tokens.
"""

import argparse
import os
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from uuid import uuid4

import psycopg
import ray
from pgvector import HalfVector
from pgvector.psycopg import register_vector

from benchmarks.json_lines import json_lines
from benchmarks.machine import describe_gpu, heading
from benchmarks.parallel import time_in_processes
from benchmarks.processes import Peak, watch_cpu, watch_memory
from benchmarks.scratch import POSTGRES, exit_when_terminated, scratch_folder, server_in
from jobs.machine import CPUS
from jobs.ray_connection import Resources, start_ray
from jobs.ray_runner import RayRunner
from rag_core.config import BertEmbedder, EmbeddingSettings, SentenceTransformersEmbedder, Settings
from rag_core.ingestion.report import SyncReport
from rag_core.settings import load_settings
from rag_core.storage import schema
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.types import Chunk, Draft
from rag_core.wiring.embedding import build_encoder
from rag_core.wiring.ingestion import build_inline_runner, build_preparation, build_sync, open_files_source

DEMO = Path(__file__).parents[1] / "demo" / "corpus"
FILES = 2_000
DELTA = 0.01
EDITABLE = {".md", ".txt", ".html"}
WARM_UP = 8
FLOOR_TABLE = "create temp table floor (document uuid, ordinal int, text text, embedding halfvec)"
FLOOR_COPY = "copy floor from stdin (format binary)"


@dataclass(frozen=True)
class Round:
    """The seconds of one round.

    `work` and `cpu` (CPU seconds by kind of process) exclude the start of models and of Ray's workers. `stages` has the
    busy seconds of each stage, in all processes together.
    """

    work: float
    report: SyncReport
    stages: Mapping[str, float]
    cpu: Mapping[str, float]
    starting_cpu: float
    starting: float = 0.0
    stopping: float = 0.0


@dataclass(frozen=True)
class Bench:
    postgres: Postgres
    settings: Settings
    folder: Path
    roots: Sequence[int]
    gpus: int = 0

    def chunks(self) -> list[Chunk]:
        files = open_files_source(self.settings, str(self.folder))
        prepare = build_preparation(self.settings, {0: files})
        drafts = prepare([Draft(id=uuid4(), source=0, entry=entry, recipe="") for entry in files.listing()])
        return [chunk for draft in drafts for chunk in draft.chunks]

    def floor(self) -> float:
        """Seconds of a minimal pipeline for one run, without deltas, ledger, tenants or retries.

        It is serial, except for the encoder's threads: the same number as in the project's in-process runner.
        """
        model = build_encoder(self.settings.embedding, CPUS)
        began = time.perf_counter()
        chunks = self.chunks()
        vectors = model.embed([chunk.embedded_text for chunk in chunks])
        with psycopg.connect(self.postgres.dsn) as connection:
            connection.execute(FLOOR_TABLE)
            register_vector(connection)
            with connection.cursor() as cursor, cursor.copy(FLOOR_COPY) as copy:
                copy.set_types(["uuid", "int4", "text", "halfvec"])
                for chunk, vector in zip(chunks, vectors, strict=True):
                    copy.write_row((chunk.document_id, chunk.ordinal, chunk.text, HalfVector(vector)))
        return time.perf_counter() - began

    def with_empty_store(self) -> "Bench":
        """Returns this bench with an empty store.

        Another round would leave large tables, and the vectors of all texts.
        """
        with psycopg.connect(self.postgres.dsn, autocommit=True) as connection:
            connection.execute("drop schema rag cascade")
            schema.migrate(self.postgres.dsn)
            connection.execute("checkpoint")
        return self

    def in_process(self) -> Round:
        return self._sync(on_ray=False)

    def on_ray(self) -> Round:
        """A round on a new Ray, because every `rag ingest` on one machine starts one."""
        began = time.perf_counter()
        start_ray()
        exit_when_terminated()
        starting = time.perf_counter() - began
        sync = self._sync(on_ray=True)
        began = time.perf_counter()
        ray.shutdown()
        return replace(sync, starting=starting, stopping=time.perf_counter() - began)

    def _sync(self, on_ray: bool) -> Round:
        resources = Resources(gpus=self.gpus)
        runner = RayRunner(self.settings, resources) if on_ray else build_inline_runner(self.settings)
        with watch_cpu(self.roots) as cpu:
            report = build_sync(self.settings, self.postgres, [str(self.folder)]).run(runner)
        started = report.seconds["list"] + report.seconds["start"]
        total, used = cpu.since(0), cpu.since(started)
        starting = sum(total.values()) - sum(used.values())
        work = report.seconds["total"] - report.seconds["start"]
        return Round(work, report, self._stages(report), used, starting)

    def _stages(self, report: SyncReport) -> dict[str, float]:
        with self.postgres.connect() as connection, closing(Ledger(connection, self.settings.tenant)) as ledger:
            stages = ledger.stage_seconds(report.job_id)
        return stages | {stage: report.seconds[stage] for stage in ("list", "publish", "index")}


def main() -> None:
    arguments = _arguments()
    settings = load_settings(overrides=arguments.set or ["embedding.type=hashing"], environment={})
    print(f"{heading(describe_gpu('cuda' if arguments.gpus else 'cpu'))}\n{settings.pipeline_version}")
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        folder = _make_input(scratch / "files", arguments)
        server = int((scratch / POSTGRES / "postmaster.pid").read_text().split()[0])
        bench = Bench(Postgres.open(dsn), settings, folder, (os.getpid(), server), arguments.gpus)
        _compare(bench, arguments.rounds)
        _delta(bench)


def _compare(bench: Bench, rounds: int) -> None:
    """Prints the medians of the rounds.

    The variants take turns, because a machine's speed drifts. The memory rounds before them fill the caches. Each
    round begins with an empty store. The documents of the last in-process round remain in the store.
    """
    _show_memory("in-process", _memory(bench, on_ray=False))
    _show_memory("on Ray", _memory(bench, on_ray=True))
    texts = sorted({chunk.embedded_text for chunk in bench.chunks()}, key=len)
    raws: dict[str, list[float]] = {encoder.type: [] for encoder in _encoders(bench.settings.embedding)}
    floors, inlines, rays = [], [], []
    for _ in range(rounds):
        for encoder in _encoders(bench.settings.embedding):
            raws[encoder.type].append(time_on_gpu(encoder, texts) if bench.gpus else raw_encode(encoder, texts))
        floors.append(bench.with_empty_store().floor())
        rays.append(bench.with_empty_store().on_ray())
        inlines.append(bench.with_empty_store().in_process())
    raw, floor = min(map(statistics.median, raws.values())), statistics.median(floors)
    for name, seconds in raws.items():
        _show(f"raw encode, {name}", statistics.median(seconds), raw, floor)
    _show(f"floor, serial, {CPUS} encoder threads", floor, raw, floor)
    _show("in-process", statistics.median(inline.work for inline in inlines), raw, floor)
    _show("on Ray", statistics.median(ray_round.work for ray_round in rays), raw, floor)
    _show("on Ray, including its start and stop", statistics.median(map(_total_seconds, rays)), raw, floor)
    print(f"encoded   {len(texts)} distinct chunks of {inlines[0].report.documents['completed']} documents")
    _explain("in-process", inlines[-1], CPUS * raw)
    _explain("on Ray", rays[-1], CPUS * raw)


def _memory(bench: Bench, on_ray: bool) -> Peak:
    with watch_memory(bench.roots[:1]) as peak:
        if on_ray:
            bench.with_empty_store().on_ray()
        else:
            bench.with_empty_store().in_process()
    return peak


def _encoders(settings: EmbeddingSettings) -> list[EmbeddingSettings]:
    if not isinstance(settings, BertEmbedder):
        return [settings]
    same = settings.model_dump(exclude={"type"})
    return [settings, SentenceTransformersEmbedder(type="sentence_transformers", **same)]


def raw_encode(settings: EmbeddingSettings, texts: Sequence[str]) -> float:
    """Seconds to encode the texts in `CPUS` processes with one thread and an equal share each."""
    return time_in_processes(partial(_prepare_encoding, settings), texts)


def time_on_gpu(settings: EmbeddingSettings, texts: Sequence[str]) -> float:
    """Seconds to encode the texts in this process, after a warm-up."""
    model = build_encoder(settings, CPUS)
    model.embed(texts[:WARM_UP])
    began = time.perf_counter()
    model.embed(texts)
    return time.perf_counter() - began


def _prepare_encoding(settings: EmbeddingSettings, texts: Sequence[str]) -> Callable[[], object]:
    model = build_encoder(settings)
    model.embed(texts[:WARM_UP])
    return partial(model.embed, texts)


def _show(name: str, seconds: float, raw: float, floor: float) -> None:
    print(f"cold      {name:34} {seconds:8.2f} s   {seconds / raw:6.2f} x raw   {seconds / floor:6.2f} x floor")


def _show_memory(name: str, peak: Peak) -> None:
    print(f"memory    {name:34} {peak.processes:8.0f} MB, object store {peak.object_store:.0f} MB, without Postgres")


def _total_seconds(ray_round: Round) -> float:
    return ray_round.starting + ray_round.report.seconds["total"] + ray_round.stopping


def _explain(name: str, last: Round, encoding: float) -> None:
    """Prints how the time of the last round was used. `encoding` is the CPU seconds of raw encode."""
    seconds, stages, documents = last.report.seconds, last.stages, max(1, last.report.documents["completed"])
    if last.starting:
        print(f"{name}: Ray started in {last.starting:.2f} s, stopped in {last.stopping:.2f} s")
    print(f"{name}: total {seconds['total']:.2f} s; {seconds['start']:.2f} s of it until the first text was encoded")
    print(f"{name}: share of busy time: {_shares(stages)}")
    print(f"{name}: busy ms per document: {_per_document(stages, documents)}")
    print(f"{name}: CPU s until the first text was encoded: {last.starting_cpu:.2f}")
    beyond = 1000 * (sum(last.cpu.values()) - encoding) / documents
    print(f"{name}: CPU ms per document:  {_per_document(last.cpu, documents)}; {beyond:.2f} more than raw encode")


def _shares(stages: Mapping[str, float]) -> str:
    total = sum(stages.values())
    return ", ".join(f"{stage} {seconds / total:.0%}" for stage, seconds in Counter(stages).most_common())


def _per_document(seconds: Mapping[str, float], documents: int) -> str:
    return ", ".join(f"{name} {1000 * value / documents:.2f}" for name, value in Counter(seconds).most_common())


def _delta(bench: Bench) -> None:
    """Prints the times of a sync without changes, and with few. Like `rag ingest`, it runs small jobs in process."""
    _show_change("nothing changed", bench.in_process().report)
    _edit(bench.folder)
    _show_change("1 % changed, added, deleted", bench.in_process().report)


def _show_change(name: str, report: SyncReport) -> None:
    changes = {change: report.documents[change] for change in ("added", "changed", "deleted")}
    model = f"{report.seconds['start']:.2f} s of it to start the model"
    print(f"delta     {name:34} {report.seconds['total']:8.2f} s, {model}; {changes}, chunks {dict(report.chunks)}")


def _edit(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.suffix in EDITABLE)
    share = max(1, int(len(files) * DELTA))
    for path in files[:share]:
        path.write_bytes(path.read_bytes() + b"\n\nA sentence was added here.\n")
    for path in files[share : 2 * share]:
        path.unlink()
        path.with_name(f"new-{path.stem}.md").write_text(f"# {path.stem}\n\nA new document.\n")


def _make_input(folder: Path, arguments: argparse.Namespace) -> Path:
    folder.mkdir()
    if arguments.folder:
        _copy_files(folder / "folder", arguments.folder, arguments.limit)
    if arguments.jsonl:
        _write_rows(folder / "jsonl", arguments.jsonl, arguments.limit)
    if not arguments.folder and not arguments.jsonl:
        _copy_demo(folder, arguments.limit or FILES)
    return folder


def _copy_files(folder: Path, origin: Path, limit: int | None) -> None:
    for path in islice(sorted(path for path in origin.rglob("*") if path.is_file()), limit):
        copy = folder / path.relative_to(origin)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def _write_rows(folder: Path, file: Path, limit: int | None) -> None:
    folder.mkdir()
    for number, row in enumerate(islice(json_lines(file), limit)):
        (folder / f"{number:07}.md").write_text(f"# {row.get('title', '')}\n\n{row['text']}\n")


def _copy_demo(folder: Path, count: int) -> None:
    """Copies the demo's files until there are `count`.

    Each copy contains its number, so that no text is stored twice.
    """
    originals = sorted(path for path in DEMO.rglob("*") if path.is_file())
    for number in range(count):
        path, copy = originals[number % len(originals)], number // len(originals)
        to = folder / f"{copy:03}" / path.relative_to(DEMO)
        to.parent.mkdir(parents=True, exist_ok=True)
        body = path.read_bytes()
        to.write_bytes(body.replace(b". ", f" ({copy}). ".encode()) if path.suffix in EDITABLE else body)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="your own files; default: copies of the demo's corpus")
    parser.add_argument("--jsonl", type=Path, help="adds the documents of a file in the format of BEIR's corpus.jsonl")
    parser.add_argument("--limit", type=int, help="maximum number of files of the folder, and of lines of the file")
    parser.add_argument("--set", action="append", metavar="SECTION.KEY=VALUE", help="settings; default: hashing")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of the run on Ray; embedding.device must be cuda")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
