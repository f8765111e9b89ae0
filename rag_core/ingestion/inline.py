"""Ingestion in this process: for a small delta, where starting Ray would take longer than the work."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from math import ceil

from rag_core.ingestion.report import RunTimes
from rag_core.ingestion.stages import Embedding, Preparation
from rag_core.protocols import Source
from rag_core.storage.publishing import CorpusWriter, Target
from rag_core.types import Draft

GROUP_BYTES = 512 * 1024
"""Of files: seconds of encoding, so that the preparation of all but the first group costs nothing."""

DOCUMENTS_A_READER = 50
"""For fewer the start of another parser child takes longer than they do."""


@dataclass(frozen=True, slots=True)
class InlineRunner:
    """`group` documents at the most go through the stages, and into the store, together; fewer where they are large.

    While a thread embeds and publishes one group, so many `readers` prepare the next.
    """

    preparation: Callable[[Mapping[int, Source]], Preparation]
    embedding: Callable[[CorpusWriter], Embedding]
    group: int
    readers: int = 1

    def run(self, target: Target, sources: Mapping[int, Source], drafts: Sequence[Draft]) -> RunTimes:
        prepare = self.preparation(sources)
        readers = min(self.readers, ceil(len(drafts) / DOCUMENTS_A_READER))
        with closing(target.open()) as writer, ThreadPoolExecutor(1) as thread, _read_by(readers, prepare) as read:
            embed = self.embedding(writer)
            seconds, publishing = 0.0, thread.submit(float)
            for group in _groups(drafts, self.group):
                prepared = read(group)
                seconds += publishing.result()
                publishing = thread.submit(_published, writer, embed, prepared)
            seconds += publishing.result()
        return RunTimes(start=embed.start_seconds, publish=seconds)


@contextmanager
def _read_by(readers: int, prepare: Preparation) -> Iterator[Callable[[Sequence[Draft]], list[Draft]]]:
    """One reader is this thread: its parser child is there for the next run, too."""
    if readers == 1:
        yield lambda group: list(prepare(group))
        return
    with ThreadPoolExecutor(readers) as pool:

        def side_by_side(group: Sequence[Draft]) -> list[Draft]:
            parts = [group[first::readers] for first in range(readers)]
            return list(chain.from_iterable(pool.map(lambda part: list(prepare(part)), parts)))

        yield side_by_side


def _published(writer: CorpusWriter, embed: Embedding, prepared: Sequence[Draft]) -> float:
    """Seconds that the store took."""
    ready = embed(prepared)
    began = time.perf_counter()
    writer.publish(ready)
    return time.perf_counter() - began


def _groups(drafts: Sequence[Draft], most: int) -> Iterator[list[Draft]]:
    """In their order. One that is larger than a group may be goes alone."""
    group: list[Draft] = []
    size = 0
    for draft in drafts:
        if group and (len(group) == most or size + draft.entry.size > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(draft)
        size += draft.entry.size
    yield group
