"""Ingestion in this process: for a small delta, where starting Ray would take longer than the work."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import TypeAlias

from rag_core.ingestion.report import RunTimes
from rag_core.ingestion.stages import Embedding, Preparation
from rag_core.ingestion.watch import Check, never_stop
from rag_core.protocols import Source
from rag_core.storage.publishing import CorpusWriter, WriteTarget
from rag_core.types import Draft

Prepare: TypeAlias = Callable[[Sequence[Draft]], Iterator[Draft]]

FIRST_GROUP_SIZE = 16
GROUP_BYTES = 512 * 1024
"""The size of a group's files. Encoding them takes seconds, in which the next group is prepared at no extra time."""


@dataclass(frozen=True, slots=True)
class InlineRunner:
    """A Runner that processes documents in groups of at most `group_size`, or fewer if they are large.

    While one group is embedded, the group before it is published and `readers` threads prepare the next.
    """

    build_preparation: Callable[[Mapping[int, Source]], Preparation]
    build_embedding: Callable[[CorpusWriter], Embedding]
    group_size: int
    readers: int = 1

    def run(
        self,
        target: WriteTarget,
        sources: Mapping[int, Source],
        drafts: Sequence[Draft],
        check: Check = never_stop,
    ) -> RunTimes:
        groups = list(_split_into_groups(drafts, self.group_size))
        prepare = _stop_between_documents(self.build_preparation(sources), check)
        if len(groups) == 1:
            # one thread and one connection are enough; this thread's parser process stays alive for the next run
            with closing(target.open()) as writer:
                embed = self.build_embedding(writer)
                embedded = embed(list(prepare(groups[0])))
                return RunTimes(start=embed.start_seconds, publish=_publish_group(writer, embedded))
        publish_seconds, last = 0.0, Future[float]()
        last.set_result(0.0)
        with (
            closing(target.open()) as reader,
            closing(target.open()) as writer,
            ThreadPoolExecutor(1) as publisher,
            closing(_prepare_groups(prepare, min(self.readers, len(groups) - 1), groups)) as prepared,
        ):
            embed = self.build_embedding(reader)
            for embedded in map(embed, prepared):
                check()
                publish_seconds += last.result()
                last = publisher.submit(_publish_group, writer, embedded)
            publish_seconds += last.result()
        return RunTimes(start=embed.start_seconds, publish=publish_seconds)


def _publish_group(writer: CorpusWriter, group: Sequence[Draft]) -> float:
    """Publishes a group. Returns the seconds that this took."""
    started = time.perf_counter()
    writer.publish(group)
    return time.perf_counter() - started


def _stop_between_documents(prepare: Preparation, check: Check) -> Prepare:
    def prepare_checked(drafts: Sequence[Draft]) -> Iterator[Draft]:
        for draft in prepare(drafts):
            check()
            yield draft

    return prepare_checked


def _prepare_groups(
    prepare: Prepare, readers: int, groups: Sequence[list[Draft]]
) -> Generator[list[Draft], None, None]:
    """Yields each group when it is prepared; the next one is already being prepared by then."""
    ended = threading.Event()

    def read(part: Sequence[Draft]) -> list[Draft]:
        return list(takewhile(lambda _: not ended.is_set(), prepare(part)))

    with ThreadPoolExecutor(readers) as pool:
        pending: list[Future[list[Draft]]] = []
        try:
            for group in groups:
                pending += [pool.submit(read, group[first::readers]) for first in range(readers)]
                if len(pending) > readers:
                    yield _pop_drafts(pending, readers)
            yield _pop_drafts(pending, readers)
        finally:
            ended.set()


def _pop_drafts(pending: "list[Future[list[Draft]]]", count: int) -> list[Draft]:
    """Removes the first `count` futures, and returns their drafts together."""
    parts = [pending.pop(0).result() for _ in range(count)]
    return list(chain.from_iterable(parts))


def _split_into_groups(drafts: Sequence[Draft], group_size: int) -> Iterator[list[Draft]]:
    """Yields the drafts in order. The first groups are small: embedding starts only when one has been read.

    A document larger than `GROUP_BYTES` forms a group alone.
    """
    group: list[Draft] = []
    group_bytes, limit = 0, min(FIRST_GROUP_SIZE, group_size)
    for draft in drafts:
        if group and (len(group) == limit or group_bytes + draft.entry.size > GROUP_BYTES):
            yield group
            group, group_bytes, limit = [], 0, min(2 * limit, group_size)
        group.append(draft)
        group_bytes += draft.entry.size
    yield group
