"""Hybrid reads while all notes are replaced again and again, and the checks of each read.

Two tenants have the same notes. Every chunk contains the number of its version, so a read shows which version it saw.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from threading import Event
from uuid import UUID

import numpy as np
from drafts import SPACE, TENANT, draft, vector
from targets import begin, end, publish

from rag_core.errors import RetrievalError, StoreError
from rag_core.protocols import Retriever
from rag_core.retrieval.bm25 import Bm25Leg
from rag_core.retrieval.dense import DenseLeg
from rag_core.retrieval.fusion import fuse_distribution
from rag_core.retrieval.hybrid import Hybrid
from rag_core.stage import recording
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.lexical.scoring import compile_all
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres
from rag_core.types import Draft, Hit, Matrix, Query

TENANTS = (TENANT, "another-tenant")
WORDS = ("gate", "key", "tide", "lamp", "pilot", "lock", "crane", "valve")
NOTES, PARTS, READERS = 24, 2, 6
SECURED = "select current_user, row_security_active('chunks')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A read. `began` and `ended` are monotonic times; `version` and `chunks` are 0 if it failed.

    `errors` includes those of stages, because a hybrid retriever answers without a leg that fails.
    """

    tenant: str
    began: float
    ended: float
    version: int
    chunks: int
    errors: tuple[str, ...]


class Vectors:
    async def embed(self, texts: Sequence[str]) -> Matrix:
        return np.stack([vector(text) for text in texts])


def publish_first(store: Postgres) -> None:
    for tenant in TENANTS:
        publish(store, *notes(tenant, 1), tenant=tenant)


def read_during_writes(store: Postgres, n_reads: int, n_versions: int) -> tuple[list[Read], int]:
    """Reads while another thread writes.

    Returns at least `n_reads` reads, during at least `n_versions` versions, and the number of segment merges.
    """
    compile_all()
    publish_first(store)
    stop, merges = Event(), list[int]()
    with ThreadPoolExecutor() as threads:
        writing = threads.submit(_write, store, stop, merges)

        def goes_on(n_read: int) -> bool:
            return (n_read < n_reads or len(merges) < n_versions) and not writing.done()

        try:
            reads = read_while(store, goes_on)
        finally:
            stop.set()
        writing.result()
    return reads, sum(merges)


def read_while(store: Postgres, goes_on: Callable[[int], bool], pause: float = 0.0) -> list[Read]:
    """Reads concurrently for both tenants, on one pool, while `goes_on(number of reads)` is true."""
    return asyncio.run(_read_while(store, goes_on, pause))


async def _read_while(store: Postgres, goes_on: Callable[[int], bool], pause: float) -> list[Read]:
    corpus, reads = CorpusReader(store), list[Read]()
    legs = {"dense": DenseLeg(corpus, Vectors(), SPACE), "bm25": Bm25Leg(corpus, Bm25(k1=1.5, b=0.75))}
    hybrid = Hybrid(corpus=corpus, legs=legs, fusion=partial(fuse_distribution, weights={}))

    async def read_on(tenant: str) -> None:
        while goes_on(len(reads)):
            reads.append(await _read(hybrid, tenant, WORDS[len(reads) % len(WORDS)]))
            await asyncio.sleep(pause)

    try:
        await _assert_secured(corpus)
        async with asyncio.TaskGroup() as readers:
            for number in range(READERS):
                readers.create_task(read_on(TENANTS[number % len(TENANTS)]))
    finally:
        await corpus.close()
    return reads


async def _assert_secured(corpus: CorpusReader) -> None:
    async with corpus.snapshot(Query(text="", tenant=TENANT)) as snapshot:
        rows = await snapshot.connection.execute(SECURED)
        assert await rows.fetchone() == ("rag_reader", True)


async def _read(retriever: Retriever, tenant: str, word: str) -> Read:
    hits, raised, began = list[Hit](), list[str](), time.monotonic()
    with recording() as stages:
        try:
            hits = await retriever.retrieve(Query(text=f"harbour {word}", tenant=tenant), NOTES * PARTS + 1)
        except (StoreError, RetrievalError) as error:
            raised = [str(error)]
    errors = [f"{stage.stage}: {stage.error}" for stage in stages if stage.error]
    return Read(
        tenant=tenant,
        began=began,
        ended=time.monotonic(),
        version=0 if raised else _version(tenant, hits),
        chunks=len(hits),
        errors=(*raised, *errors),
    )


def _version(tenant: str, hits: Sequence[Hit]) -> int:
    """The version of the hits.

    Asserts that they are all chunks that the tenant had at one moment, each with the scores of all legs.
    """
    texts = {hit.chunk.id: hit.chunk.text for hit in hits}
    assert len(texts) == len(hits)
    assert all(texts.values())
    versions = {int(text.split()[1]) for text in texts.values()}
    assert len(versions) == 1, versions
    (version,) = versions
    assert texts in _states(tenant, version)
    assert all(hit.scores.keys() == hits[0].scores.keys() for hit in hits)
    assert all(hit.scores.get("bm25", 1.0) > 0 for hit in hits)  # the index contains all of them
    return version


@cache
def notes(tenant: str, version: int) -> tuple[Draft, ...]:
    return tuple(
        draft(f"file:///{number}.md", *(_text(version, number, part) for part in range(PARTS)), tenant=tenant)
        for number in range(NOTES)
    )


def _text(version: int, number: int, part: int) -> str:
    return f"version {version} of note {number}, part {part}: harbour {WORDS[(number + part) % len(WORDS)]}"


@cache
def _states(tenant: str, version: int) -> list[dict[UUID, str]]:
    """The texts of all notes, and of the notes that remain after each deletion."""
    return [
        {chunk.id: chunk.text for note in notes(tenant, version) if note not in deleted for chunk in note.chunks}
        for deleted in ((), *_deletions(tenant, version))
    ]


def _deletions(tenant: str, version: int) -> tuple[Sequence[Draft], Sequence[Draft]]:
    """Two deletions. The first causes a merge of the version's segment, the second of the segment of re-added notes."""
    return notes(tenant, version)[::3], notes(tenant, version)[::6]


def _write(store: Postgres, stop: Event, merges: list[int]) -> None:
    """Writes one version after another, and appends the number of merges after each to `merges`."""
    for version in count(2):
        if stop.is_set():
            return
        merges.append(sum(_replace(store, tenant, version) for tenant in TENANTS))


def _replace(store: Postgres, tenant: str, version: int) -> int:
    """Replaces all notes at once, deletes some, adds them again, and deletes some of these again.

    Returns the number of merges.
    """
    many, few = _deletions(tenant, version)
    publish(store, *notes(tenant, version), tenant=tenant)
    _delete(store, tenant, many)
    publish(store, *many, tenant=tenant)
    _delete(store, tenant, few)
    return sum(change.action == "merged" for change in Maintenance().run(store, tenant))


def _delete(store: Postgres, tenant: str, drafts: Sequence[Draft]) -> None:
    target = begin(store, deleted=drafts, tenant=tenant)
    writer = target.open()
    try:
        writer.delete([draft.id for draft in drafts])
    finally:
        writer.close()
    end(target)
