"""The stages of ingestion as Ray Data wants them: thin adapters around the objects of `rag_core.ingestion`."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
from ray.data.block import BlockAccessor
from ray.data.datasource import Datasink, WriteResult

from jobs.tables import DRAFTS, drafts_to_table, table_to_drafts
from jobs.telemetry import observe
from rag_core.config import Settings
from rag_core.ingestion.report import RunTimes
from rag_core.ingestion.stages import Preparation
from rag_core.protocols import Source
from rag_core.storage.parts import split
from rag_core.storage.publishing import CorpusWriter, Target
from rag_core.telemetry.reporting import reporting_batch
from rag_core.types import Draft
from rag_core.wiring.ingestion import embedding, preparation

PART_CHUNKS = 500
"""Chunks of a part. Parts that are more than a block together go to several embedding actors."""


@dataclass(frozen=True, eq=False)
class Work:
    """What a worker needs to know of a job. Equal when the job and its lease are the same: a worker builds its parts
    once.

    `carried` is for what workers tell: they tell nothing without it.
    """

    settings: Settings
    target: Target
    sources: Mapping[int, Source]
    carried: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Work) and self.target == other.target


class Prepare:
    """A task: reads, parses and splits. A part of a very large document is a table of its own."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        if batch.num_rows == 0:
            yield DRAFTS.empty_table()
            return
        prepare, small = _preparation(self._work), list[Draft]()
        with _told(self._work, "prepare", batch.num_rows):
            for draft in prepare(table_to_drafts(batch)):
                parts = split(draft, PART_CHUNKS)
                if len(parts) == 1:
                    small += parts
                else:
                    yield from (drafts_to_table([part]) for part in parts)
        if small:
            yield drafts_to_table(small)


class Embed:
    """An actor: holds the model."""

    def __init__(self, work: Work, threads: int = 1) -> None:
        self._work = work
        self._embed = embedding(work.settings, work.target.open(), threads)
        self._embed.load()

    def __call__(self, batch: pa.Table) -> pa.Table:
        if batch.num_rows == 0:
            return DRAFTS.empty_table()
        began = time.time()
        with _told(self._work, "embed", batch.num_rows):
            return drafts_to_table(self._embed(table_to_drafts(batch)), began)


class Publish(Datasink[RunTimes]):
    """Publishes every block in groups of documents. Afterwards `times` holds what it took.

    A write that is repeated because its worker died changes nothing twice. `start` is when the first block's
    embedding began, in seconds since the epoch.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self.times = RunTimes()

    def write(self, blocks: Iterable[Any], ctx: Any) -> RunTimes:  # noqa: ARG002 - Ray passes it
        writer, group = _writer(self._work), self._work.settings.ingestion.group
        first, seconds = float("inf"), 0.0
        for block in blocks:
            table = BlockAccessor.for_block(block).to_arrow()
            for start in range(0, table.num_rows, group):
                part = table.slice(start, group)
                first = min(first, part["began"][0].as_py())
                drafts, began = table_to_drafts(part), time.perf_counter()
                with _told(self._work, "publish", part.num_rows):
                    writer.publish(drafts)
                seconds += time.perf_counter() - began
        return RunTimes(start=first, publish=seconds)

    def on_write_complete(self, write_result: WriteResult[RunTimes]) -> None:
        parts = write_result.write_returns
        self.times = RunTimes(
            start=min((part.start for part in parts), default=float("inf")),
            publish=sum(part.publish for part in parts),
        )


@contextmanager
def _told(work: Work, stage: str, documents: int) -> Iterator[None]:
    """A part of a document counts as one."""
    with reporting_batch(_observed(work), stage, {"documents": documents}):
        yield


@lru_cache(maxsize=1)
def _observed(work: Work) -> Mapping[str, str]:
    if work.carried:
        observe("ingest-worker", work.settings.telemetry)
    return work.carried


@lru_cache(maxsize=1)
def _preparation(work: Work) -> Preparation:
    return preparation(work.settings, work.sources)


@lru_cache(maxsize=1)
def _writer(work: Work) -> CorpusWriter:
    """One connection a worker, not a block."""
    return work.target.open()
