"""Traces of many questions through a retriever, for evaluation: in this process, or in actors of Ray Data."""

import pickle
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from jobs.ray_errors import translate_ray_errors
from jobs.ray_runner import UNLIMITED, actor_cpus, count_cpus, redirect_native_errors, start_ray
from rag_core.config import Settings
from rag_core.errors import RagError, describe_error
from rag_core.evaluation.question import Question
from rag_core.evaluation.stages import Trace
from rag_core.knowledge_base import KnowledgeBase
from rag_core.storage.postgres import Postgres

BATCH_QUESTIONS = 32
"""The number of questions that an actor gets at a time. Progress advances in steps of this size."""
TRACES = pa.schema([("trace", pa.large_binary())])


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceTask:
    """The retriever to trace, its collection, and the number `k` of hits.

    Each process answers `callers` questions concurrently.
    """

    settings: Settings
    collection: str
    k: int
    callers: int = 1

    @classmethod
    def build(cls, settings: Settings, postgres: Postgres, collection: str, k: int, callers: int) -> Self:
        """A task for the store that is open: an embedded store's address differs from its setting."""
        store = settings.store.model_copy(update={"url": postgres.dsn})
        task_settings = settings.model_copy(update={"store": store})
        return cls(settings=task_settings, collection=collection, k=k, callers=callers)


def trace_inline(task: TraceTask, questions: Sequence[Question]) -> Iterator[Trace]:
    """Answers the questions in this process, and yields the traces in the order of the questions."""
    with KnowledgeBase(task.settings) as knowledge, ThreadPoolExecutor(task.callers) as threads:
        knowledge.load()
        yield from threads.map(lambda question: _trace_question(knowledge, task, question.id, question.text), questions)


def trace_on_ray(task: TraceTask, questions: Sequence[Question]) -> Iterator[Trace]:
    """Answers the questions in Ray actors, and yields the traces in the order in which they are completed."""
    with redirect_native_errors():
        start_ray()
        import ray

        rows = pa.table(
            {"id": [question.id for question in questions], "text": [question.text for question in questions]}
        )
        blocks = [rows.slice(first, BATCH_QUESTIONS) for first in range(0, len(rows), BATCH_QUESTIONS)]
        cpus = count_cpus(UNLIMITED)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own code causes the warnings
            traces = ray.data.from_arrow(blocks).map_batches(
                TraceQuestions,
                fn_constructor_args=(task,),
                batch_format="pyarrow",
                batch_size=None,
                num_cpus=actor_cpus(cpus),
                compute=ray.data.ActorPoolStrategy(size=min(cpus, len(blocks))),
            )
            batches: Iterator[Any] = iter(traces.iter_batches(batch_size=None, batch_format="pyarrow"))
            with translate_ray_errors():
                for batch in batches:
                    yield from (pickle.loads(row) for row in batch["trace"].to_pylist())  # noqa: S301 - our actors pickled it


class TraceQuestions:
    """An actor that holds the knowledge base, with its models."""

    def __init__(self, task: TraceTask) -> None:
        self._task, self._resources = task, ExitStack()
        self._knowledge = self._resources.enter_context(KnowledgeBase(task.settings))
        self._knowledge.load()
        self._threads = self._resources.enter_context(ThreadPoolExecutor(task.callers))

    def __call__(self, batch: pa.Table) -> pa.Table:
        ids, texts = batch["id"].to_pylist(), batch["text"].to_pylist()
        traces = self._threads.map(lambda id, text: _trace_question(self._knowledge, self._task, id, text), ids, texts)
        return pa.table({"trace": [pickle.dumps(trace) for trace in traces]}, schema=TRACES)

    def __del__(self) -> None:
        """Closes the knowledge base. Ray Data deletes this object when it no longer needs the actor."""
        self._resources.close()


def _trace_question(knowledge: KnowledgeBase, task: TraceTask, id: str, text: str) -> Trace:
    started = time.perf_counter()
    try:
        hits, stages = knowledge.explain(text, task.k, task.collection)
    except RagError as error:
        return Trace(question=id, seconds=time.perf_counter() - started, error=describe_error(error))
    seconds = time.perf_counter() - started
    return Trace(question=id, ranking=tuple(hit.chunk.id for hit in hits), stages=tuple(stages), seconds=seconds)
