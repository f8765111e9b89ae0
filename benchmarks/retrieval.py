"""The whole default retriever (dense and bm25, fused) under row-level security, the question's encoding included.

Vectors of the corpus are made up, questions are really encoded; every question is asked once, so that nothing is
remembered. Callers ask one question after another, all in one process and one event loop, as in a replica of Serve:
its loop is uvloop, too, and its garbage collector spares what is loaded.

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
from benchmarks.targets import begun
from rag_core.config import Settings
from rag_core.protocols import Retriever
from rag_core.settings import load_settings
from rag_core.stage import recording
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres
from rag_core.types import Draft, Query, StageReport
from rag_core.wiring.embedding import embedding_space
from rag_core.wiring.retrieval import build_retriever
from serve.shape.garbage_collection import freeze_loaded_objects

TENANT, COLLECTION = "benchmark", "default"
BATCH = 256
WORDS = 9
K = 10


@dataclass(frozen=True)
class Asked:
    """Milliseconds of each question, and the reports of all their stages."""

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
    target = begun(postgres, TENANT, COLLECTION, embedding_space(settings.embedding), documents)
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
        chosen = build_retriever(settings, corpus)
        asked = questions(texts)
        # loads, compiles, connects, and fills caches
        await _ask(chosen, [next(asked) for _ in range(count)], max(callers))
        freeze_loaded_objects()
        print(f"{'callers':>7} {'stage':12} {'p50 ms':>8} {'p95 ms':>8} {'errors':>7} {'questions/s':>12}")
        for number in callers:
            _show(number, await _ask(chosen, [next(asked) for _ in range(count)], number))
    finally:
        await corpus.close()


def questions(texts: Sequence[str]) -> Iterator[str]:
    """A few words in a row out of a passage each, none twice."""
    generator = np.random.default_rng(9)
    seen: set[str] = set()
    while True:
        words = texts[int(generator.integers(len(texts)))].split()
        first = int(generator.integers(max(1, len(words) - WORDS)))
        question = " ".join(words[first : first + WORDS])
        if question not in seen:
            seen.add(question)
            yield question


async def _ask(chosen: Retriever, questions: Sequence[str], callers: int) -> Asked:
    waiting = iter(questions)
    asked = Asked(0.0, [], [])

    async def call() -> None:
        for question in waiting:
            began = time.perf_counter()
            with recording() as stages:
                await chosen.retrieve(Query(text=question, tenant=TENANT, collection=COLLECTION), K)
            asked.milliseconds.append(1000 * (time.perf_counter() - began))
            asked.reports.extend(stages)

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    return Asked(time.perf_counter() - began, asked.milliseconds, asked.reports)


def _show(callers: int, asked: Asked) -> None:
    """A stage's time has that of the stages in it, and a leg's what it waited for its turn."""
    _row(callers, "all", asked.milliseconds, 0, f"{len(asked.milliseconds) / asked.seconds:12.1f}")
    for stage in dict.fromkeys(report.stage for report in asked.reports):
        reports = [report for report in asked.reports if report.stage == stage]
        errors = sum(bool(report.error) for report in reports)
        _row(callers, stage, [1000 * report.seconds for report in reports], errors)


def _row(callers: int, stage: str, milliseconds: Sequence[float], errors: int, throughput: str = "") -> None:
    p50, p95 = np.percentile(milliseconds, [50, 95])
    print(f"{callers:7} {stage:12} {p50:8.1f} {p95:8.1f} {errors:7} {throughput}".rstrip())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="passages, four a document")
    texts_argument(parser)
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--questions", type=int, default=200, help="by each number of callers")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
