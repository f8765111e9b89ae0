"""Ingestion in this process: for a small delta, where starting Ray would take longer than the work."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from rag_core.ingestion.report import RunTimes
from rag_core.ingestion.stages import Embedding, Preparation
from rag_core.protocols import Source
from rag_core.storage.publishing import CorpusWriter, Target
from rag_core.types import Draft

GROUP_BYTES = 4_000_000
"""Of files; with its chunks and vectors, a text takes some ten times its size."""


@dataclass(frozen=True, slots=True)
class InlineRunner:
    """`group` documents at the most go through the stages, and into the store, together; fewer where they are large."""

    preparation: Callable[[Mapping[int, Source]], Preparation]
    embedding: Callable[[CorpusWriter], Embedding]
    group: int

    def run(self, target: Target, sources: Mapping[int, Source], drafts: Sequence[Draft]) -> RunTimes:
        prepare, publishing = self.preparation(sources), 0.0
        with closing(target.open()) as writer:
            embed = self.embedding(writer)
            for group in _groups(drafts, self.group):
                ready = embed(list(prepare(group)))
                began = time.perf_counter()
                writer.publish(ready)
                publishing += time.perf_counter() - began
        return RunTimes(start=embed.start_seconds, publish=publishing)


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
