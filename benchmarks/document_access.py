"""Searches of a collection whose documents belong to 50 groups, compared with a brute-force filter.

Each document can be read by the members of one group, so a member of one group reads 2 % of the collection. The vectors
are random around common centres; nothing is embedded. Each search is followed by the same search of a second
collection, which has the same documents without groups: the ratios compare these pairs.

    python -m benchmarks.document_access
    python -m benchmarks.document_access --rows 4000
"""

import argparse
import asyncio
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch
from uuid import UUID

import numpy as np
from psycopg.sql import SQL, Composed

from benchmarks.corpus import CHUNKS_PER_DOCUMENT, SPACE, drafts, passages, vectors
from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from benchmarks.targets import begin_job
from rag_core.storage import snapshot
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres
from rag_core.types import Draft, Matrix, Query

TENANT, RESTRICTED, OPEN = "benchmark", "restricted", "open"
GROUPS = 50
MEMBERSHIPS = (1, 10, 25, 50)
BATCH = 256
QUESTIONS, ROUNDS, K = 50, 3, 10
QUERY = Query(text="", tenant=TENANT, collection=RESTRICTED)
OPEN_QUERY = replace(QUERY, collection=OPEN)
ALL_GROUPS = tuple(f"group-{number}" for number in range(GROUPS))
NO_ROLE = "select %(local)s::boolean"


@dataclass(frozen=True, slots=True)
class Corpus:
    """The documents with their groups. `embeddings` has one row per chunk, as stored, in the order of `chunk_ids`."""

    documents: Sequence[Draft]
    chunk_ids: Sequence[UUID]
    embeddings: Matrix

    def readable_chunks(self, groups: Collection[str]) -> list[int]:
        """The row numbers of the chunks that members of these groups can read."""
        readable = (number for number, draft in enumerate(self.documents) if not set(draft.access).isdisjoint(groups))
        return [CHUNKS_PER_DOCUMENT * number + n for number in readable for n in range(CHUNKS_PER_DOCUMENT)]

    def rank(self, question: Matrix, rows: Sequence[int]) -> list[UUID]:
        """The nearest of these chunks, by brute force."""
        products = self.embeddings[rows] @ question.astype(np.float16).astype(np.float32)
        return [self.chunk_ids[rows[index]] for index in np.argsort(-products)[:K]]


@dataclass(frozen=True, slots=True)
class Searches:
    """The ids of each question's hits, best first, and the time of each search."""

    ids: Sequence[Sequence[UUID]]
    milliseconds: Sequence[float]

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.milliseconds, percent))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A member's searches against the brute-force filter, and their time against searches without restrictions."""

    groups: int
    chunks: int
    plan: str
    recall: float
    same_bm25: float
    p50_ratio: float
    p95_ratio: float


def main() -> None:
    rows = _arguments().rows
    print(heading())
    print(f"input     {rows} chunks, {rows // CHUNKS_PER_DOCUMENT} documents, {GROUPS} groups, {QUESTIONS} questions")
    corpus, open_corpus = build_corpus(rows), build_corpus(rows, OPEN)
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        postgres = Postgres.open(dsn)
        publish(postgres, open_corpus, OPEN)
        with_policies, without = asyncio.run(compare_roles(postgres, vectors(QUESTIONS, seed=8)))
        ratios = [with_policies.percentile(percent) / without.percentile(percent) for percent in (50, 95)]
        print(
            f"policies  nothing restricted: p50 {ratios[0]:.2f} x, p95 {ratios[1]:.2f} x of the same without policies"
        )
        publish(postgres, corpus, RESTRICTED)
        print(f"{'groups':>8} {'chunks':>8} {'recall@10':>10} {'same bm25':>10} {'p50':>7} {'p95':>7}   plan")
        for row in asyncio.run(compare_members(postgres, corpus)):
            print(
                f"{row.groups:8} {row.chunks:8} {row.recall:10.3f} {row.same_bm25:10.3f} {row.p50_ratio:5.2f} x"
                f" {row.p95_ratio:5.2f} x   {row.plan}"
            )


def build_corpus(rows: int, collection: str = RESTRICTED) -> Corpus:
    """The documents of a collection, each with its group, or without groups if the collection is `OPEN`."""
    embeddings = vectors(rows)
    owners = np.random.default_rng(33).permutation(rows // CHUNKS_PER_DOCUMENT) % GROUPS
    documents = [
        replace(draft, access=() if collection == OPEN else (f"group-{owner}",))
        for draft, owner in zip(drafts(passages(rows), embeddings, TENANT, collection), owners, strict=True)
    ]
    ids = [chunk.id for draft in documents for chunk in draft.chunks]
    return Corpus(documents, ids, embeddings.astype(np.float16).astype(np.float32))


def publish(postgres: Postgres, corpus: Corpus, collection: str) -> None:
    """Publishes the documents, and builds the index."""
    with closing(begin_job(postgres, TENANT, collection, SPACE, corpus.documents).open()) as writer:
        for first in range(0, len(corpus.documents), BATCH):
            writer.publish(corpus.documents[first : first + BATCH])
    Maintenance(build_at=1, drop_below=0).run(postgres, TENANT)


async def compare_roles(postgres: Postgres, questions: Matrix) -> tuple[Searches, Searches]:
    """Searches without groups, by the role with policies and by the role without, in turns."""
    reader, other = CorpusReader(postgres), CorpusReader(postgres)
    with_policies, without = list[float](), list[float]()
    try:
        for round_number in range(ROUNDS + 1):
            for question in questions:
                _, own = await _search(reader, OPEN_QUERY, question)
                with patch.object(snapshot, "ASSUME_READER", NO_ROLE):  # read when the connection is opened
                    _, others = await _search(other, OPEN_QUERY, question)
                if round_number:  # the first round fills the caches
                    with_policies.append(own)
                    without.append(others)
    finally:
        await reader.close()
        await other.close()
    return Searches([], with_policies), Searches([], without)


async def _search(reader: CorpusReader, query: Query, question: Matrix) -> tuple[list[UUID], float]:
    """The hits of a dense search, and its milliseconds."""
    began = time.perf_counter()
    ranking = await reader.rank_dense(query, question, SPACE, K)
    return [id for id, _ in ranking], 1_000 * (time.perf_counter() - began)


async def compare_members(postgres: Postgres, corpus: Corpus) -> list[Comparison]:
    """Searches as a member of 1, 10, 25 and all groups."""
    texts = [" ".join(text.split()[:5]) for text in passages(QUESTIONS, seed=9)]
    reader = CorpusReader(postgres)
    try:
        rankings = {}
        for text in texts:
            query = replace(QUERY, text=text, groups=ALL_GROUPS)
            rankings[text] = await reader.rank_bm25(query, len(corpus.chunk_ids), Bm25(1.5, 0.75))
        return [await _compare_member(reader, corpus, rankings, number) for number in MEMBERSHIPS]
    finally:
        await reader.close()


async def _compare_member(
    reader: CorpusReader, corpus: Corpus, rankings: Mapping[str, Sequence[tuple[UUID, float]]], number: int
) -> Comparison:
    """`rankings` holds all chunks that BM25 finds for each question, by the question."""
    questions, query = vectors(QUESTIONS, seed=8), replace(QUERY, groups=ALL_GROUPS[:number])
    rows = corpus.readable_chunks(query.groups)
    searches, free = await _search_in_pairs(reader, query, questions)
    readable = {corpus.chunk_ids[row] for row in rows}
    if not readable.issuperset(id for ids in searches.ids for id in ids):
        raise AssertionError("a search returned a chunk that the member may not read")
    true = [corpus.rank(question, rows) for question in questions]
    found = [len({*ids} & {*best}) / len(best) for ids, best in zip(searches.ids, true, strict=True)]
    same = []
    for text, ranking in rankings.items():
        hits = await reader.rank_bm25(replace(query, text=text), K, Bm25(1.5, 0.75))
        same.append(hits == [pair for pair in ranking if pair[0] in readable][:K])
    return Comparison(
        groups=number,
        chunks=len(rows),
        plan=await explain_plan(reader, query, questions[0]),
        recall=float(np.mean(found)),
        same_bm25=float(np.mean(same)),
        p50_ratio=searches.percentile(50) / free.percentile(50),
        p95_ratio=searches.percentile(95) / free.percentile(95),
    )


async def _search_in_pairs(reader: CorpusReader, query: Query, questions: Matrix) -> tuple[Searches, Searches]:
    """The searches of the query, and those of the collection without groups, in turns."""
    ids = [(await _search(reader, query, question))[0] for question in questions]  # fills the caches, too
    milliseconds, free = list[float](), list[float]()
    for question in np.tile(questions, (ROUNDS, 1)):
        milliseconds.append((await _search(reader, query, question))[1])
        free.append((await _search(reader, OPEN_QUERY, question))[1])
    return Searches(ids, milliseconds), Searches([], free)


async def explain_plan(reader: CorpusReader, query: Query, question: Matrix) -> str:
    """`hnsw` if the search uses the index, else `exact`; as `explain` says."""
    async with reader.snapshot(query) as opened:
        plans: list[str] = []
        with _explaining(opened.connection, plans):
            await reader.rank_dense(query, question, SPACE, K)
    return "hnsw" if "vectors_hnsw" in plans[-1] else "exact, by the index on documents"


@contextmanager
def _explaining(connection: object, plans: list[str]) -> Iterator[None]:
    """Adds the plan of each ranking of the connection to `plans`."""
    execute = connection.execute  # type: ignore[attr-defined]

    async def explain_and_execute(statement: object, *arguments: object, **options: object) -> object:
        if isinstance(statement, Composed) and "order by" in statement.as_string():
            rows = await execute(SQL("explain (costs off) ") + statement, *arguments)
            plans.append("\n".join([row[0] async for row in rows]))
        return await execute(statement, *arguments, **options)

    connection.execute = explain_and_execute  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del connection.execute  # type: ignore[attr-defined]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_000, help="number of chunks, four per document")
    return parser.parse_args()


if __name__ == "__main__":
    main()
