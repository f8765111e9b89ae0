"""Ingestion in this process: for a small delta, where starting Ray would take longer than the work."""

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, takewhile

from rag_core.ingestion.report import RunTimes
from rag_core.ingestion.stages import Embedding, Preparation
from rag_core.protocols import Source
from rag_core.storage.publishing import CorpusWriter, Target
from rag_core.types import Draft

FIRST_GROUP = 16
GROUP_BYTES = 512 * 1024
"""Of files: seconds of encoding, so that the preparation of all but the first group costs nothing."""


@dataclass(frozen=True, slots=True)
class InlineRunner:
    """`group` documents at the most go through the stages, and into the store, together; fewer where they are large.

    While one group is embedded, the one before it is published and so many `readers` prepare the next.
    """

    preparation: Callable[[Mapping[int, Source]], Preparation]
    embedding: Callable[[CorpusWriter], Embedding]
    group: int
    readers: int = 1

    def run(self, target: Target, sources: Mapping[int, Source], drafts: Sequence[Draft]) -> RunTimes:
        groups = list(_groups(drafts, self.group))
        prepare = self.preparation(sources)
        return self._beside(target, prepare, groups) if len(groups) > 1 else self._alone(target, prepare, groups[0])

    def _alone(self, target: Target, prepare: Preparation, group: list[Draft]) -> RunTimes:
        """By this thread and one connection: there is nothing to do beside it. This thread's parser child stays for the
        next run."""
        with closing(target.open()) as writer:
            embed = self.embedding(writer)
            embedded = embed(list(prepare(group)))
            return RunTimes(start=embed.start_seconds, publish=_publish(writer, embedded))

    def _beside(self, target: Target, prepare: Preparation, groups: Sequence[list[Draft]]) -> RunTimes:
        with (
            closing(target.open()) as reader,
            closing(target.open()) as writer,
            ThreadPoolExecutor(1) as publisher,
            closing(_read(prepare, min(self.readers, len(groups) - 1), groups)) as prepared,
        ):
            embed = self.embedding(reader)
            publishing = _published(publisher, writer, map(embed, prepared))
        return RunTimes(start=embed.start_seconds, publish=publishing)


def _publish(writer: CorpusWriter, group: Sequence[Draft]) -> float:
    """How many seconds it took."""
    began = time.perf_counter()
    writer.publish(group)
    return time.perf_counter() - began


def _published(publisher: ThreadPoolExecutor, writer: CorpusWriter, groups: Iterable[Sequence[Draft]]) -> float:
    """One group after the other, each while the next one is made. How many seconds it took."""
    seconds, last = 0.0, Future[float]()
    last.set_result(0.0)
    for group in groups:
        seconds += last.result()
        last = publisher.submit(_publish, writer, group)
    return seconds + last.result()


def _read(prepare: Preparation, readers: int, groups: Sequence[list[Draft]]) -> Generator[list[Draft], None, None]:
    ended = threading.Event()

    def read(part: Sequence[Draft]) -> list[Draft]:
        return list(takewhile(lambda _: not ended.is_set(), prepare(part)))

    with ThreadPoolExecutor(readers) as pool:
        ahead: list[Future[list[Draft]]] = []
        try:
            for group in groups:
                ahead += [pool.submit(read, group[first::readers]) for first in range(readers)]
                if len(ahead) > readers:
                    yield _taken(ahead, readers)
            yield _taken(ahead, readers)
        finally:
            ended.set()


def _taken(ahead: "list[Future[list[Draft]]]", count: int) -> list[Draft]:
    done = [ahead.pop(0).result() for _ in range(count)]
    return list(chain.from_iterable(done))


def _groups(drafts: Sequence[Draft], most: int) -> Iterator[list[Draft]]:
    """In their order, the first ones small: nothing is embedded until one has been read. A document that is larger than
    a group may be goes alone."""
    group: list[Draft] = []
    size, now = 0, min(FIRST_GROUP, most)
    for draft in drafts:
        if group and (len(group) == now or size + draft.entry.size > GROUP_BYTES):
            yield group
            group, size, now = [], 0, min(2 * now, most)
        group.append(draft)
        size += draft.entry.size
    yield group
