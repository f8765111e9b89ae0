"""Ingestion in this process: for a small delta, where starting Ray would take longer than the work."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from rag_core.ingestion.report import RunTimes
from rag_core.ingestion.stages import Embedding, Preparation
from rag_core.protocols import Source
from rag_core.storage.publishing import CorpusWriter, Target
from rag_core.types import Draft


@dataclass(frozen=True, slots=True)
class InlineRunner:
    """`group` documents at the most go through the stages, and into the store, together."""

    preparation: Callable[[Mapping[int, Source]], Preparation]
    embedding: Callable[[CorpusWriter], Embedding]
    group: int

    def run(self, target: Target, sources: Mapping[int, Source], drafts: Sequence[Draft]) -> RunTimes:
        prepare, publishing = self.preparation(sources), 0.0
        with closing(target.open()) as writer:
            embed = self.embedding(writer)
            for first in range(0, len(drafts), self.group):
                ready = embed([prepare(draft) for draft in drafts[first : first + self.group]])
                began = time.perf_counter()
                writer.publish(ready)
                publishing += time.perf_counter() - began
        return RunTimes(start=embed.start_seconds, publish=publishing)
