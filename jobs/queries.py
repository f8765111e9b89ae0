"""Many questions to one retriever, as an evaluation asks them: in this process, or in actors of Ray Data."""

import pickle
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jobs.ray_errors import errors_as_raised
from jobs.runner import EVERYTHING, SMALL_SHARE, cpus_of, native_errors_logged, start_ray
from rag_core.config import Settings
from rag_core.errors import RagError
from rag_core.evaluation.dataset import Question
from rag_core.evaluation.stages import Trace
from rag_core.knowledge_base import KnowledgeBase

BATCH = 32
"""Questions that an actor gets at once; also what progress counts in."""
TRACES = pa.schema([("trace", pa.large_binary())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What is asked of whom. `callers` questions are under way in a process at a time."""

    settings: Settings
    collection: str
    k: int
    callers: int = 1


def ask_here(asking: Asking, questions: Sequence[Question]) -> Iterator[Trace]:
    """In the order of the questions."""
    with KnowledgeBase(asking.settings) as knowledge, ThreadPoolExecutor(asking.callers) as threads:
        knowledge.load()
        yield from threads.map(lambda question: _asked(knowledge, asking, question.id, question.text), questions)


def ask_on_ray(asking: Asking, questions: Sequence[Question]) -> Iterator[Trace]:
    """In the order in which they were answered."""
    with native_errors_logged():
        start_ray()
        import ray

        rows = pa.table({"id": [each.id for each in questions], "text": [each.text for each in questions]})
        actors = min(cpus_of(EVERYTHING), -(-len(questions) // BATCH))
        share = 1 - SMALL_SHARE if cpus_of(EVERYTHING) > 1 else 1 - 2 * SMALL_SHARE  # a pool that takes every CPU hangs
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Ray's own making
            blocks = [rows.slice(first, BATCH) for first in range(0, len(rows), BATCH)]
            answered = ray.data.from_arrow(blocks).map_batches(
                Ask,
                fn_constructor_args=(asking,),
                batch_format="pyarrow",
                batch_size=None,
                num_cpus=share,
                compute=ray.data.ActorPoolStrategy(size=actors),
            )
            batches: Iterator[Any] = iter(answered.iter_batches(batch_size=None, batch_format="pyarrow"))
            with errors_as_raised():
                for batch in batches:
                    yield from (pickle.loads(row) for row in batch["trace"].to_pylist())  # noqa: S301 - our own


class Ask:
    """An actor: holds the knowledge base, with its models."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._knowledge = KnowledgeBase(asking.settings)
        self._knowledge.load()
        self._threads = ThreadPoolExecutor(asking.callers)

    def __call__(self, batch: pa.Table) -> pa.Table:
        ids, texts = batch["id"].to_pylist(), batch["text"].to_pylist()
        traces = self._threads.map(lambda id, text: _asked(self._knowledge, self._asking, id, text), ids, texts)
        return pa.table({"trace": [pickle.dumps(trace) for trace in traces]}, schema=TRACES)


def _asked(knowledge: KnowledgeBase, asking: Asking, id: str, text: str) -> Trace:
    began = time.perf_counter()
    try:
        hits, stages = knowledge.explain(text, asking.k, asking.collection)
    except RagError as error:
        return Trace(question=id, seconds=time.perf_counter() - began, error=f"{type(error).__name__}: {error}")
    seconds = time.perf_counter() - began
    return Trace(question=id, ranking=tuple(hit.chunk.id for hit in hits), stages=tuple(stages), seconds=seconds)
