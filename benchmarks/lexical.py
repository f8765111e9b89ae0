"""The lexical index at scale: build, publish, BM25 with several numbers of segments, and two alternatives.

Machines are noisy, so compare the ratios of one run, not the seconds of two. The project's search runs under row-level
security, in an open snapshot, and on the event loop of a Serve replica. Postgres' full-text search runs without this
security, because Postgres does not use its index under it.

    python -m benchmarks.lexical
    python -m benchmarks.lexical --size 1000000
    python -m benchmarks.lexical --size 20000 --texts data/*/corpus.jsonl
    python -m benchmarks.lexical --size 20000 --dataset scifact     # BEIR layout: nDCG@10 of the project and of bm25s
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import bm25s
import numpy as np
import psycopg
import pytrec_eval
import uvloop

from benchmarks.corpus import drafts, passages, texts_argument
from benchmarks.machine import heading
from benchmarks.parallel import time_in_processes
from benchmarks.scratch import scratch_folder, server_in
from benchmarks.targets import begin_job
from jobs.machine import CPUS
from rag_core.config import Bm25Retriever
from rag_core.evaluation.dataset import read_corpus, read_qrels, read_queries
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.lexical import kinds, reading, writing
from rag_core.storage.lexical.overview import read_overview
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.lexical.segment_cache import SegmentCache
from rag_core.storage.postgres import OPTIONS, Postgres, transaction
from rag_core.storage.publishing import WriteTarget
from rag_core.storage.snapshot import Snapshot
from rag_core.text.analysis import terms
from rag_core.types import Chunk, Document, Draft, Entry, Query, Space, chunk_id, document_id
from serve.shape.garbage_collection import freeze_loaded_objects

T = TypeVar("T")

TENANT, COLLECTION, LANGUAGE = "benchmark", "default", "en"
SPACE = Space(model="none", dimension=1, window=256, fingerprint="none")
SEGMENTS = (1, 10, 100)
BATCH = 1_000
QUESTIONS, WORDS, ROUNDS = 100, 8, 5
STOP_WORDS = 100
BACKENDS = ("numpy", "numba")
K = 100
BM25 = Bm25(Bm25Retriever(type="bm25").k1, Bm25Retriever(type="bm25").b)
CACHED_BYTES = 1 << 30
NO_ROWS = "select pg_logical_emit_message(true, 'benchmark', '')"
FULL_TEXT = """
create table full_text (id int generated always as identity, words tsvector);
create index on full_text using gin (words)"""
FULL_TEXT_ADD = "insert into full_text (words) select to_tsvector('english', t) from unnest(%s::text[]) t"
FULL_TEXT_SEARCH = """
select id, ts_rank_cd(words, question) as score from full_text, to_tsquery('english', %s) question
where words @@ question order by score desc limit 100"""


@dataclass(frozen=True)
class Latency:
    """Milliseconds of each call. As text: p50 and p95."""

    milliseconds: list[float]

    def __str__(self) -> str:
        return f"{self.p50:8.2f} {np.percentile(self.milliseconds, 95):8.2f}"

    @property
    def p50(self) -> float:
        return float(np.percentile(self.milliseconds, 50))


def main() -> None:
    arguments = _arguments()
    print(heading())
    texts = passages(arguments.size, files=arguments.texts)
    documents = list(drafts(texts, np.ones((len(texts), 1), np.float32), TENANT, COLLECTION))
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        postgres = Postgres.open(dsn)
        target = _publish_without_segments(postgres, documents)
        questions = _questions(texts, QUESTIONS, made_up=not arguments.texts)
        _measure_writing(postgres, target, documents)
        ours = _measure_searches(postgres, target, documents, questions)
        _measure_alternatives(postgres, texts, questions, ours)
        if arguments.dataset:
            _measure_quality(postgres, arguments.dataset)


def _publish_without_segments(postgres: Postgres, documents: Sequence[Draft]) -> WriteTarget:
    """Publishes the documents without their segments, which are measured separately."""
    target = begin_job(postgres, TENANT, COLLECTION, SPACE, documents)
    writer = target.open()
    for batch in _batches(documents, BATCH):
        writer.publish(batch)
    writer.close()
    _drop_segments(postgres)
    return target


def _measure_writing(postgres: Postgres, target: WriteTarget, documents: Sequence[Draft]) -> None:
    count = sum(len(draft.chunks) for draft in documents)
    building = publishing = 0.0
    freeze_loaded_objects()  # else each garbage collection visits all passages; a worker never holds so many
    with postgres.connect() as connection:
        for batch in _batches(documents, BATCH):
            prepared, seconds = _time(partial(writing.prepare, batch, target.run))
            building += seconds
            publishing += _time(partial(_publish, connection, target, prepared))[1]
        print(f"build     words to segments of {BATCH}    {count / building:9,.0f} chunks/s")
        print(f"publish   one transaction per segment   {count / publishing:9,.0f} chunks/s")
        print(f"both      in one process {count / (building + publishing):23,.0f} chunks/s")
        _drop_segments(postgres)
        # like a job on Ray
        batches = list(_batches(documents, BATCH))
        parallel = time_in_processes(partial(_writer, postgres, target), batches, start_method="fork")
        print(f"both      in {CPUS} processes {count / parallel:24,.0f} chunks/s")
        empty, one = _time_one_document(connection, target, documents)
    print(f"one       document of 20 chunks        {one:9.1f} ms, an empty commit {empty:.1f} ms (medians)")
    _drop_segments(postgres)


def _writer(postgres: Postgres, target: WriteTarget, batches: Sequence[Sequence[Draft]]) -> Callable[[], None]:
    connection = postgres.connect()

    def write() -> None:
        for batch in batches:
            _publish(connection, target, writing.prepare(batch, target.run))

    return write


def _time_one_document(
    connection: psycopg.Connection, target: WriteTarget, documents: Sequence[Draft]
) -> tuple[float, float]:
    """Median milliseconds of an empty commit, and of publishing a document of 20 chunks."""
    empty, publishing = [], []
    for first in range(0, 150, 5):
        parts = documents[first : first + 5]
        chunks = tuple(chunk for part in parts for chunk in part.chunks)
        long = replace(parts[0], id=UUID(int=first), chunks=chunks)

        def publish(long: Draft = long) -> None:
            _publish(connection, target, writing.prepare([long], target.run))

        publishing.append(1_000 * _time(publish)[1])
        empty.append(1_000 * _time(lambda: _commit(connection))[1])
    return float(np.median(empty)), float(np.median(publishing))


def _commit(connection: psycopg.Connection) -> None:
    with transaction(connection, TENANT):
        connection.execute(NO_ROWS)


def _publish(connection: psycopg.Connection, target: WriteTarget, prepared: writing.PreparedSegments) -> None:
    with transaction(connection, TENANT):
        scope = {"tenant": TENANT, "collection": target.collection}
        writing.add_segments(connection, scope, prepared)


def _measure_searches(
    postgres: Postgres, target: WriteTarget, documents: Sequence[Draft], questions: Sequence[str]
) -> dict[int, Latency]:
    count, cold = sum(len(draft.chunks) for draft in documents), {}
    heads = "".join(f"   {head:>17}" for head in ("no cache", "their ids", "cached", "their ids"))
    print(f"bm25      {f'k={K}':19}{heads}")
    print(" " * 29 + f"   {'p50 ms':>8} {'p95 ms':>8}" * 4)
    for segments in SEGMENTS:
        with postgres.connect() as connection:
            for batch in _batches(documents, -(-count // segments)):
                _publish(connection, target, writing.prepare(batch, target.run))
        _vacuum(postgres)
        segment_count = _count(postgres, "lexical_segments")
        (cold[segments], cold_ids), warm = (
            uvloop.run(_time_searches(postgres, questions, room)) for room in (0, CACHED_BYTES)
        )
        print(f"bm25      {segment_count:4} segments         {cold[segments]}   {cold_ids}   {warm[0]}   {warm[1]}")
        _drop_segments(postgres)
    print(f"floor     a query without rows      {uvloop.run(_time_round_trips(postgres))}")
    return cold


async def _time_round_trips(postgres: Postgres) -> Latency:
    """The time of a statement that returns no rows: the minimum of any query on this machine."""
    reader, milliseconds = CorpusReader(postgres), []
    try:
        async with reader.snapshot(_query("")) as snapshot:
            for _ in range(QUESTIONS):
                began = time.perf_counter()
                await snapshot.connection.execute("select where false")
                milliseconds.append(1_000 * (time.perf_counter() - began))
    finally:
        await reader.close()
    return Latency(milliseconds)


async def _time_searches(postgres: Postgres, questions: Sequence[str], cached_bytes: int) -> tuple[Latency, Latency]:
    """The times to rank chunks, and to read the ids of the best. The first round does not count."""
    reader, cache = CorpusReader(postgres), SegmentCache(cached_bytes, cached_bytes)
    ranking: list[float] = []
    naming: list[float] = []
    try:
        async with reader.snapshot(_query("")) as opened:
            if cached_bytes:
                await _keep_ids(opened, cache)
            for number in range(ROUNDS):
                if number == 1:
                    ranking.clear()
                    naming.clear()
                for question in questions:
                    snapshot = replace(reading.with_kind(opened, kinds.WORDS), kept={})  # forgets the previous round
                    query, began = _query(question), time.perf_counter()
                    scorer = await reading.read_scorer(snapshot, cache, query, BM25)
                    positions = await reading.find_best_chunks(snapshot, scorer, query, K)
                    ranked = time.perf_counter()
                    await reading.resolve_ids(snapshot, cache, positions)
                    ranking.append(1_000 * (ranked - began))
                    naming.append(1_000 * (time.perf_counter() - ranked))
    finally:
        await reader.close()
    return Latency(ranking), Latency(naming)


async def _keep_ids(snapshot: Snapshot, cache: SegmentCache) -> None:
    """Fills the cache with chunk ids, as a hybrid query does to locate the chunks that its other legs found."""
    words = reading.with_kind(snapshot, kinds.WORDS)
    await reading.locate_chunks(words, cache, await read_overview(words), [])


def _measure_alternatives(
    postgres: Postgres, texts: Sequence[str], questions: Sequence[str], ours: dict[int, Latency]
) -> None:
    """Measures bm25s and Postgres' full-text search with the same questions."""
    print(f"others    their time divided by the project's, with {' and '.join(map(str, ours))} segments and no cache")
    for backend in BACKENDS:
        _measure_bm25s(backend, texts, questions, ours)
    with psycopg.connect(postgres.dsn, options=OPTIONS, autocommit=True) as connection:
        connection.execute(FULL_TEXT)
        for first in range(0, len(texts), 10_000):
            connection.execute(FULL_TEXT_ADD, [list(texts[first : first + 10_000])])
        connection.execute("vacuum analyze full_text")
        latency = _time_each(
            questions, lambda question: connection.execute(FULL_TEXT_SEARCH, [_any_word_query(question)]).fetchall()
        )
    print(f"full text any word, ts_rank_cd      {latency}   {_ratios(latency, ours)}")


def _measure_bm25s(backend: str, texts: Sequence[str], questions: Sequence[str], ours: dict[int, Latency]) -> None:
    index, seconds = _time(lambda: _bm25s([terms(text, LANGUAGE) for text in texts], backend))

    def ask(question: str) -> object:
        return index.retrieve([list(dict.fromkeys(terms(question, LANGUAGE)))], k=K, show_progress=False)

    latency = _time_each(questions, ask)
    print(
        f"bm25s     {f'{backend}, in this process':25} {latency}   {_ratios(latency, ours)}; built in {seconds:.1f} s"
    )


def _ratios(other: Latency, ours: dict[int, Latency]) -> str:
    return "  ".join(f"{other.p50 / latency.p50:.2f} x" for latency in ours.values())


def _bm25s(tokens: list[list[str]], backend: str = "numpy") -> bm25s.BM25:
    index = bm25s.BM25(k1=BM25.k1, b=BM25.b, method="lucene", backend=backend)
    index.index(tokens, show_progress=False)
    return index


def _any_word_query(question: str) -> str:
    return " | ".join(word for word in question.split() if word.isalnum())


def _time_each(questions: Sequence[str], ask: Callable[[str], object]) -> Latency:
    """Times each question, after one round that compiles and fills the caches."""
    for question in questions:
        ask(question)
    return Latency([1_000 * _time(partial(ask, question))[1] for question in questions])


def _measure_quality(postgres: Postgres, folder: Path) -> None:
    documents = list(_documents(folder))
    target = _publish_without_segments(postgres, documents)
    with postgres.connect() as connection:
        for batch in _batches(documents, BATCH):
            _publish(connection, target, writing.prepare(batch, target.run))
    grades = read_qrels(folder / "qrels" / "test.tsv")
    questions = {id: text for id, text in read_queries(folder / "queries.jsonl").items() if id in grades}
    index = _bm25s([terms(chunk.embedded_text, LANGUAGE) for draft in documents for chunk in draft.chunks])
    uris = [draft.entry.uri for draft in documents]
    by_chunk = {draft.chunks[0].id: draft.entry.uri for draft in documents}
    runs = {
        "project": uvloop.run(_project_run(postgres, questions, by_chunk)),
        "bm25s": _bm25s_run(index, questions, uris),
    }
    for name, run in runs.items():
        scores = pytrec_eval.RelevanceEvaluator(grades, {"ndcg_cut.10"}).evaluate(run)
        mean = np.mean([score["ndcg_cut_10"] for score in scores.values()])
        print(
            f"quality   {folder.name}: nDCG@10 of {name:7} {mean:.4f}   "
            f"{len(questions)} questions, {len(uris)} documents"
        )


async def _project_run(
    postgres: Postgres, questions: dict[str, str], uris: dict[UUID, str]
) -> dict[str, dict[str, float]]:
    reader = CorpusReader(postgres)
    try:
        return {
            id: {uris[chunk]: score for chunk, score in await reader.rank_bm25(_query(text), K, BM25)}
            for id, text in questions.items()
        }
    finally:
        await reader.close()


def _bm25s_run(index: bm25s.BM25, questions: dict[str, str], uris: Sequence[str]) -> dict[str, dict[str, float]]:
    run = {}
    for id, text in questions.items():
        scores = index.get_scores(terms(text, LANGUAGE))
        run[id] = {uris[n]: float(scores[n]) for n in np.argsort(-scores, kind="stable")[:K].tolist() if scores[n] > 0}
    return run


def _documents(folder: Path) -> Iterator[Draft]:
    """The documents of a dataset, each with one chunk and the title as its prefix."""
    for row in read_corpus(folder / "corpus.jsonl"):
        text, title = row.text or row.title, row.title
        id = document_id(TENANT, COLLECTION, row.id)
        chunk = Chunk(
            id=chunk_id(id, text, 0), document_id=id, ordinal=0, text=text, start=0, end=len(text), prefix=title
        )
        yield Draft(
            id=id,
            source=1,
            entry=Entry(uri=row.id, size=len(text), modified_ns=0),
            recipe="benchmark",
            document=Document(uri=row.id, text=text, title=title, language=LANGUAGE),
            chunks=(chunk,),
            vectors=np.ones((1, 1), np.float32),
        )


def _questions(texts: Sequence[str], count: int, made_up: bool) -> list[str]:
    """Questions of `WORDS` words of one passage. The most frequent generated words are left out, like stop words."""
    random = np.random.default_rng(8)
    frequent = Counter(word for text in texts[:5_000] for word in text.split()).most_common(STOP_WORDS * made_up)
    stop_words = {word for word, _ in frequent}
    questions: list[str] = []
    while len(questions) < count:
        words = sorted(set(texts[int(random.integers(len(texts)))].split()) - stop_words)
        if len(words) >= WORDS:
            questions.append(" ".join(random.choice(words, WORDS, replace=False)))
    return questions


def _query(text: str) -> Query:
    return Query(text=text, tenant=TENANT, collection=COLLECTION)


def _batches(documents: Sequence[Draft], chunks: int) -> Iterator[Sequence[Draft]]:
    """Batches of about this number of chunks, if all documents have as many chunks as the first."""
    step = max(1, chunks // len(documents[0].chunks))
    for first in range(0, len(documents), step):
        yield documents[first : first + step]


def _drop_segments(postgres: Postgres) -> None:
    with psycopg.connect(postgres.dsn, options=OPTIONS, autocommit=True) as connection:
        connection.execute("truncate lexical_segments, lexical_documents, lexical_postings")
        connection.execute("checkpoint")  # else Postgres writes these pages during the next measurement


def _vacuum(postgres: Postgres) -> None:
    with psycopg.connect(postgres.dsn, options=OPTIONS, autocommit=True) as connection:
        connection.execute("vacuum analyze")


def _count(postgres: Postgres, table: str) -> int:
    with psycopg.connect(postgres.dsn, options=OPTIONS) as connection:
        row = connection.execute(f"select count(*) from {table}".encode()).fetchone()  # noqa: S608
    return int(row[0]) if row else 0


def _time(work: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    value = work()
    return value, time.perf_counter() - began


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000, help="number of passages, four per document")
    texts_argument(parser)
    parser.add_argument("--dataset", type=Path, help="a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv")
    return parser.parse_args()


if __name__ == "__main__":
    main()
