"""What a splade leg adds to the default retriever on datasets in BEIR's layout, and what it costs.

A dataset is ingested once, with term weights. Then every question is asked with each variant of the retriever in turn,
so that the times of the variants suffer alike from other work on the machine.

    python -m benchmarks.splade data/xquad_en data/scifact
    python -m benchmarks.splade data/scifact --splade "{type: sentence_transformers, model: some/splade}"
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg

from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from jobs.evaluate import ingest_dataset, judge_traces
from jobs.ingest import RunnerName
from rag_core.config import Settings
from rag_core.evaluation.dataset import Dataset, read_dataset
from rag_core.evaluation.significance import randomisation_p
from rag_core.evaluation.stages import FINAL, JudgedQuestion, Trace
from rag_core.knowledge_base import KnowledgeBase
from rag_core.settings import load_settings
from rag_core.storage.postgres import OPTIONS, Postgres
from rag_core.wiring.embedding import build_encoder
from rag_core.wiring.splade import build_weigher

LEG = "retrieval.retrievers.splade={type: splade}"
VARIANTS = {
    "default": (),
    "splade third": (LEG, "retrieval.fusion.weights=null"),
    "splade quarter": (LEG, "retrieval.fusion.weights={dense: 0.5, bm25: 0.25, splade: 0.25}"),
    "splade for bm25": (
        LEG,
        "retrieval.retrievers.bm25=null",
        "retrieval.fusion.weights={bm25: null, dense: 0.5, splade: 0.5}",
    ),
}
"""The settings of each variant. The first is the one that the others are compared with."""
DEPTH, WARM_UPS, SAMPLE = 100, 5, 100
MEASURE = "ndcg@10"
SIZES = """
select kind, sum(pg_column_size(postings) + pg_column_size(term)) from lexical_postings
where collection = (select id from collections where name = %s) group by kind order by kind"""
CHUNKS = """
select prefix || text from chunks where collection = (select id from collections where name = %s) order by id"""


@dataclass(frozen=True)
class Outcome:
    """The judged questions of a variant, and the seconds of each."""

    judged: list[JudgedQuestion]
    seconds: list[float]


def main() -> None:
    arguments = _arguments()
    print(heading())
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        os.environ["RAG_HOME"] = str(scratch)
        postgres = Postgres.open(dsn)
        for folder in arguments.datasets:
            dataset = read_dataset(folder).limit_questions(arguments.questions)
            settings = {
                name: load_settings(
                    None, "default", [f"store.url={dsn}", f"splade={arguments.splade}", *variant], environment={}
                )
                for name, variant in VARIANTS.items()
            }
            _measure(dataset, postgres, settings)


def _measure(dataset: Dataset, postgres: Postgres, settings: dict[str, Settings]) -> None:
    default = settings["default"]
    began = time.perf_counter()
    ingest_dataset(dataset, dataset.name, postgres, default, RunnerName.inline, lambda _job, _plan: None)
    seconds = time.perf_counter() - began
    print(f"\n{dataset.name}: {len(dataset.questions)} questions, ingested in {seconds:.0f} s", flush=True)
    _show_costs(dataset.name, postgres, default)
    _show_outcomes(_ask(dataset, postgres, settings))


def _show_costs(collection: str, postgres: Postgres, settings: Settings) -> None:
    with psycopg.connect(postgres.dsn, options=OPTIONS) as connection:
        texts = [text for (text,) in connection.execute(CHUNKS, [collection])]
        sizes = connection.execute(SIZES, [collection]).fetchall()
    for kind, size in sizes:
        print(f"index of {kind}: {float(size) / 1e3 / len(texts):.2f} MB per 1,000 chunks; there are {len(texts)}")
    for name, encode in (
        ("embed", build_encoder(settings.embedding).embed),
        ("weigh", build_weigher(settings.splade).weigh),
    ):
        print(f"{name}: {_cpu_seconds(encode, texts[:SAMPLE]) * 1000:.1f} CPU s per 1,000 chunks", flush=True)


def _cpu_seconds(encode: Callable[[Sequence[str]], object], texts: Sequence[str]) -> float:
    """The CPU seconds for a text."""
    for _ in range(2):  # TorchScript compiles
        encode(texts[:4])
    began = time.process_time()
    encode(texts)
    return (time.process_time() - began) / len(texts)


def _ask(dataset: Dataset, postgres: Postgres, settings: dict[str, Settings]) -> dict[str, Outcome]:
    traces: dict[str, list[Trace]] = {name: [] for name in settings}
    with ExitStack() as resources:
        bases = {name: resources.enter_context(KnowledgeBase(variant)) for name, variant in settings.items()}
        for base in bases.values():
            for number in range(WARM_UPS):
                base.explain(f"warm up {number}", DEPTH, dataset.name)
        for question in dataset.questions:
            for name, base in bases.items():
                traces[name].append(_trace(base, question.id, question.text, dataset.name))
    return {
        name: Outcome(
            judge_traces(dataset, dataset.name, traces[name], postgres, settings[name].tenant),
            [trace.seconds for trace in traces[name]],
        )
        for name in settings
    }


def _trace(base: KnowledgeBase, id: str, text: str, collection: str) -> Trace:
    began = time.perf_counter()
    hits, stages = base.explain(text, DEPTH, collection)
    seconds = time.perf_counter() - began
    return Trace(question=id, ranking=tuple(hit.chunk.id for hit in hits), stages=tuple(stages), seconds=seconds)


def _show_outcomes(outcomes: dict[str, Outcome]) -> None:
    base = _scores(outcomes["default"])
    print(f"{'variant':16} {MEASURE:>8} {'gain':>7} {'p':>5} {'chunks':>7} {'p50 ms':>7} {'p95 ms':>7}")
    for name, outcome in outcomes.items():
        scores, (p50, p95) = _scores(outcome), np.percentile(outcome.seconds, [50, 95]) * 1000
        chunks = [question.chunk_measures[FINAL][MEASURE] for question in outcome.judged if question.chunk_measures]
        gain, p = np.mean(scores) - np.mean(base), randomisation_p(base, scores)
        chunk_text = f"{np.mean(chunks):.4f}" if chunks else ""
        print(
            f"{name:16} {np.mean(scores):8.4f} {gain:+7.4f} {p:5.2f} {chunk_text:>7} {p50:7.1f} {p95:7.1f}", flush=True
        )


def _scores(outcome: Outcome) -> list[float]:
    return [question.measures[FINAL][MEASURE] for question in outcome.judged]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", type=Path, nargs="+", help="folders in BEIR's layout")
    parser.add_argument(
        "--splade", default="{type: bert, model: splade-tiny}", help="the section splade of the settings"
    )
    parser.add_argument("--questions", type=int, help="use the first questions only")
    return parser.parse_args()


if __name__ == "__main__":
    main()
