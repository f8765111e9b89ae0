"""The store at scale: publishing, the vector index, and dense search with filters.

Machines are noisy, so compare the ratios of one run, not the seconds of two. Everything runs under row-level security,
as for a tenant, except the raw COPY that publishing is compared with.

    python -m benchmarks.store
    python -m benchmarks.store --rows 20000 --texts data/*/corpus.jsonl
"""

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from uuid import UUID

import numpy as np
import psycopg
from pgvector import HalfVector
from pgvector.psycopg import register_vector

from benchmarks.corpus import SPACE, drafts, passages, texts_argument, vectors
from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from benchmarks.targets import begin_job
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.filters import parse_filter
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres
from rag_core.types import Draft, Matrix, Query

TENANT, COLLECTION = "benchmark", "default"
BATCH = 256
COPIES = 3
QUESTIONS = 50
K = 10
SHARES = {"all": "", "10 %": "in_10", "1 %": "in_100", "0.1 %": "in_1000"}
FLOOR_TABLE = """
create table floor (id uuid, document_id uuid, ordinal int, start_offset int, end_offset int, text text,
  embedding halfvec)"""
FLOOR_COPY = "copy floor from stdin (format binary)"
FLOOR_TYPES = ["uuid", "uuid", "int4", "int4", "int4", "text", "halfvec"]


@dataclass(frozen=True)
class Searches:
    """The `ids` of each question's hits, best first, and its time."""

    ids: list[list[UUID]]
    milliseconds: list[float]

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.milliseconds, percent))

    def recall(self, exact: "Searches") -> float:
        shares = [len({*ids} & {*true}) / len(true) for ids, true in zip(self.ids, exact.ids, strict=True)]
        return float(np.mean(shares))


def main() -> None:
    arguments = _arguments()
    print(heading())
    texts, embeddings = passages(arguments.rows, files=arguments.texts), vectors(arguments.rows, files=arguments.texts)
    documents = list(drafts(texts, embeddings, TENANT, COLLECTION))
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        postgres = Postgres.open(dsn)
        copying = [_raw_copy(postgres, documents) for _ in range(COPIES)]  # the first one runs on a cold server
        floor, publishing = median(copying), _publish(postgres, documents)
        print(f"publish   raw COPY without security {arguments.rows / floor:8,.0f} rows/s, median of {COPIES}")
        print(
            f"publish   CorpusWriter              {arguments.rows / publishing:8,.0f} rows/s"
            f"   {publishing / floor:.1f} x the time of COPY; includes documents, values, texts and ledger"
        )
        _compare_searches(postgres, vectors(QUESTIONS, seed=8, files=arguments.texts))


def _raw_copy(postgres: Postgres, documents: Sequence[Draft]) -> float:
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute(FLOOR_TABLE)
        register_vector(connection)
        began = time.perf_counter()
        with connection.cursor() as cursor, cursor.copy(FLOOR_COPY) as copy:
            copy.set_types(FLOOR_TYPES)
            for row in _copy_rows(documents):
                copy.write_row(row)
        connection.commit()
        seconds = time.perf_counter() - began
        connection.execute("drop table floor")
    return seconds


def _copy_rows(documents: Sequence[Draft]) -> Iterator[tuple[object, ...]]:
    for draft in documents:
        rows = np.empty((0, 0)) if draft.vectors is None else draft.vectors.astype(np.float16)
        for chunk, row in zip(draft.chunks, rows, strict=True):
            yield chunk.id, draft.id, chunk.ordinal, chunk.start, chunk.end, chunk.text, HalfVector(row)


def _publish(postgres: Postgres, documents: Sequence[Draft]) -> float:
    with closing(begin_job(postgres, TENANT, COLLECTION, SPACE, documents).open()) as writer:
        began = time.perf_counter()
        for first in range(0, len(documents), BATCH):
            writer.publish(documents[first : first + BATCH])
        return time.perf_counter() - began


def _compare_searches(postgres: Postgres, questions: Matrix) -> None:
    # both runs have table statistics; only the second has an index
    _run_maintenance(postgres, Maintenance(build_at=10**9))
    exact = {share: asyncio.run(_searches(postgres, questions, share)) for share in SHARES}
    _run_maintenance(postgres, Maintenance(build_at=1, drop_below=0))
    head = f"{'p50 ms':>8} {'p95 ms':>8} {'recall':>8} {'min hits':>8}"
    print(f"dense     k={K}          {head}   exact scan p50, p95 ms, and its ratio")
    for share in SHARES:
        searches = asyncio.run(_searches(postgres, questions, share))
        print(
            f"dense     {share:12} {searches.percentile(50):10.1f} {searches.percentile(95):8.1f} "
            f"{searches.recall(exact[share]):8.3f} {min(map(len, searches.ids)):8}   "
            f"{exact[share].percentile(50):8.1f} {exact[share].percentile(95):8.1f}"
            f"   {exact[share].percentile(50) / searches.percentile(50):5.1f} x"
        )


def _run_maintenance(postgres: Postgres, maintenance: Maintenance) -> None:
    for change in maintenance.run(postgres, TENANT):
        print(f"index     {change.action} {change.subject} in {change.seconds:.1f} s")


async def _searches(postgres: Postgres, questions: Matrix, share: str) -> Searches:
    key = SHARES[share]
    filters = parse_filter({"key": key, "type": "eq", "value": 0}) if key else None
    query = Query(text="", tenant=TENANT, collection=COLLECTION, filters=filters)
    ids: list[list[UUID]] = []
    milliseconds: list[float] = []
    reader = CorpusReader(postgres)
    try:
        for _ in range(2):  # the first round fills the caches and prepares the statements
            ids.clear()
            milliseconds.clear()
            for question in questions:
                began = time.perf_counter()
                ranking = await reader.rank_dense(query, question, SPACE, K)
                milliseconds.append(1_000 * (time.perf_counter() - began))
                ids.append([id for id, _ in ranking])
    finally:
        await reader.close()
    return Searches(ids, milliseconds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="number of passages, four per document")
    texts_argument(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
