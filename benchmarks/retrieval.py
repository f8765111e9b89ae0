"""The whole default retriever (dense and bm25, fused) under row-level security, including the question's embedding.

The vectors of the corpus are generated; questions are really embedded. Every question is asked once, so that no cache
has it. Callers ask one question after another, all in one process and one event loop, like in a Serve replica. The loop
is uvloop, and loaded objects are frozen for the garbage collector, as in a replica.

    python -m benchmarks.retrieval
    python -m benchmarks.retrieval --rows 20000 --texts data/*/corpus.jsonl --callers 1 8
"""

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import uvloop

from benchmarks.corpus import drafts, passages, texts_argument, vectors
from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from benchmarks.targets import begin_job
from rag_core.config import Settings
from rag_core.protocols import Retriever
from rag_core.settings import load_settings
from rag_core.stage import recording
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres
from rag_core.types import Draft, Query, StageReport
from rag_core.wiring.embedding import embedding_space
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.retrieval import build_retriever
from serve.shape.garbage_collection import freeze_loaded_objects

TENANT, COLLECTION = "benchmark", "default"
BATCH = 256
WORDS = 9
K = 10


@dataclass(frozen=True)
class CallerTimes:
    """The seconds of all questions, the milliseconds of each, and the reports of their stages."""

    seconds: float
    milliseconds: list[float]
    reports: list[StageReport]


def main() -> None:
    arguments = _arguments()
    print(heading())
    settings = load_settings(None, "default", arguments.set, environment={})
    texts = passages(arguments.rows, files=arguments.texts)
    documents = list(drafts(texts, vectors(arguments.rows, files=arguments.texts), TENANT, COLLECTION))
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        postgres = Postgres.open(dsn)
        load(postgres, settings, documents)
        uvloop.run(_compare(postgres, settings, texts, arguments.callers, arguments.questions))


def load(postgres: Postgres, settings: Settings, documents: Sequence[Draft]) -> None:
    began = time.perf_counter()
    target = begin_job(postgres, TENANT, COLLECTION, embedding_space(settings.embedding), documents)
    with closing(target.open()) as writer:
        for first in range(0, len(documents), BATCH):
            writer.publish(documents[first : first + BATCH])
    print(f"published in {time.perf_counter() - began:.1f} s")
    for change in Maintenance().run(postgres, TENANT):
        print(f"{change.action} {change.subject} in {change.seconds:.1f} s")


async def _compare(
    postgres: Postgres, settings: Settings, texts: Sequence[str], callers: Sequence[int], count: int
) -> None:
    corpus = CorpusReader(postgres)
    try:
        retriever = build_retriever(settings, corpus, RemoteModels())
        unused = questions(texts)
        # this loads, compiles, connects and fills caches
        await _ask(retriever, [next(unused) for _ in range(count)], max(callers))
        freeze_loaded_objects()
        print(f"{'callers':>7} {'stage':12} {'p50 ms':>8} {'p95 ms':>8} {'errors':>7} {'questions/s':>12}")
        for number in callers:
            _show(number, await _ask(retriever, [next(unused) for _ in range(count)], number))
    finally:
        await corpus.close()


def questions(texts: Sequence[str]) -> Iterator[str]:
    """Questions of `WORDS` consecutive words of a passage, none twice."""
    generator = np.random.default_rng(9)
    yielded: set[str] = set()
    while True:
        words = texts[int(generator.integers(len(texts)))].split()
        first = int(generator.integers(max(1, len(words) - WORDS)))
        question = " ".join(words[first : first + WORDS])
        if question not in yielded:
            yielded.add(question)
            yield question


async def _ask(retriever: Retriever, questions: Sequence[str], callers: int) -> CallerTimes:
    waiting = iter(questions)
    milliseconds: list[float] = []
    reports: list[StageReport] = []

    async def call() -> None:
        for question in waiting:
            began = time.perf_counter()
            with recording() as stages:
                await retriever.retrieve(Query(text=question, tenant=TENANT, collection=COLLECTION), K)
            milliseconds.append(1000 * (time.perf_counter() - began))
            reports.extend(stages)

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    return CallerTimes(time.perf_counter() - began, milliseconds, reports)


def _show(callers: int, times: CallerTimes) -> None:
    """Prints a row per stage. A stage's time includes its inner stages, and a leg's time includes its waiting time."""
    _print_row(callers, "all", times.milliseconds, 0, f"{len(times.milliseconds) / times.seconds:12.1f}")
    for stage in dict.fromkeys(report.stage for report in times.reports):
        reports = [report for report in times.reports if report.stage == stage]
        errors = sum(bool(report.error) for report in reports)
        _print_row(callers, stage, [1000 * report.seconds for report in reports], errors)


def _print_row(callers: int, stage: str, milliseconds: Sequence[float], errors: int, throughput: str = "") -> None:
    p50, p95 = np.percentile(milliseconds, [50, 95])
    print(f"{callers:7} {stage:12} {p50:8.1f} {p95:8.1f} {errors:7} {throughput}".rstrip())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="number of passages, four per document")
    texts_argument(parser)
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--questions", type=int, default=200, help="questions for each number of callers")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
