"""The stages of ingestion for Ray Data: thin adapters around the objects of `rag_core.ingestion`."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
from ray.data.block import BlockAccessor
from ray.data.datasource import Datasink, WriteResult

from jobs.draft_tables import DRAFTS, drafts_to_table, table_to_drafts
from jobs.telemetry import configure_telemetry
from rag_core.config import Settings
from rag_core.ingestion.report import RunTimes
from rag_core.ingestion.stages import Preparation
from rag_core.protocols import Source
from rag_core.storage.parts import split_draft
from rag_core.storage.publishing import CorpusWriter, WriteTarget
from rag_core.telemetry.reporting import reporting_batch
from rag_core.types import Draft
from rag_core.wiring.ingestion import build_embedding, build_preparation

PART_CHUNKS = 500
"""The number of chunks in a part of a large document. Several actors embed a document whose parts exceed a block."""


@dataclass(frozen=True, eq=False)
class JobSpec:
    """The description of a job for its workers.

    Specs are equal if job and lease are the same, so a worker builds its objects once. `operation_values` are the
    `propagation_values` of the job's operation; if they are empty, workers report nothing.
    """

    settings: Settings
    target: WriteTarget
    sources: Mapping[int, Source]
    operation_values: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobSpec) and self.target == other.target


class Prepare:
    """A task that reads, parses and splits documents. Each part of a very large document is a separate table."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        if batch.num_rows == 0:
            yield DRAFTS.empty_table()
            return
        prepare, small = _get_preparation(self._spec), list[Draft]()
        with _report_batch(self._spec, "prepare", batch.num_rows):
            for draft in prepare(table_to_drafts(batch)):
                parts = split_draft(draft, PART_CHUNKS)
                if len(parts) == 1:
                    small += parts
                else:
                    yield from (drafts_to_table([part]) for part in parts)
        if small:
            yield drafts_to_table(small)


class Embed:
    """An actor that holds the embedding model."""

    def __init__(self, spec: JobSpec, threads: int = 1) -> None:
        self._spec = spec
        self._embed = build_embedding(spec.settings, spec.target.open(), threads)
        self._embed.load()

    def __call__(self, batch: pa.Table) -> pa.Table:
        if batch.num_rows == 0:
            return DRAFTS.empty_table()
        started = time.time()
        with _report_batch(self._spec, "embed", batch.num_rows):
            return drafts_to_table(self._embed(table_to_drafts(batch)), started)


class Publish(Datasink[RunTimes]):
    """A sink that publishes every block in groups of documents. Afterwards `times` holds the durations.

    If a worker dies, Ray repeats its write; documents that were already published do not change. `times.start` is the
    time when the first block began to be embedded, in seconds since the epoch.
    """

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self.times = RunTimes()

    def write(self, blocks: Iterable[Any], ctx: Any) -> RunTimes:  # noqa: ARG002 - Ray passes it
        writer, group_size = _get_writer(self._spec), self._spec.settings.ingestion.group
        embedding_started, seconds = float("inf"), 0.0
        for block in blocks:
            table = BlockAccessor.for_block(block).to_arrow()
            for first in range(0, table.num_rows, group_size):
                group = table.slice(first, group_size)
                embedding_started = min(embedding_started, group["embedding_started"][0].as_py())
                drafts, started = table_to_drafts(group), time.perf_counter()
                with _report_batch(self._spec, "publish", group.num_rows):
                    writer.publish(drafts)
                seconds += time.perf_counter() - started
        return RunTimes(start=embedding_started, publish=seconds)

    def on_write_complete(self, write_result: WriteResult[RunTimes]) -> None:
        parts = write_result.write_returns
        self.times = RunTimes(
            start=min((part.start for part in parts), default=float("inf")),
            publish=sum(part.publish for part in parts),
        )


@contextmanager
def _report_batch(spec: JobSpec, stage: str, documents: int) -> Iterator[None]:
    """Reports the block as a batch of `documents`. A part of a document counts as one."""
    with reporting_batch(_prepare_reporting(spec), stage, {"documents": documents}):
        yield


@lru_cache(maxsize=1)
def _prepare_reporting(spec: JobSpec) -> Mapping[str, str]:
    """Configures this worker's telemetry if the job has an operation. Returns the operation's values."""
    if spec.operation_values:
        configure_telemetry("ingest-worker", spec.settings.telemetry)
    return spec.operation_values


@lru_cache(maxsize=1)
def _get_preparation(spec: JobSpec) -> Preparation:
    return build_preparation(spec.settings, spec.sources)


@lru_cache(maxsize=1)
def _get_writer(spec: JobSpec) -> CorpusWriter:
    """Opens one connection per worker, not per block."""
    return spec.target.open()
