"""Many questions to a knowledge base, for evaluation: in this process, or in actors of Ray Data."""

import os
import pickle
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from jobs.ingest import RunnerName
from jobs.ray_errors import translate_ray_errors
from jobs.ray_runner import UNLIMITED, actor_cpus, count_cpus, redirect_native_errors, start_ray
from rag_core.config import Settings
from rag_core.evaluation.question import Question
from rag_core.knowledge_base import KnowledgeBase

Outcome = TypeVar("Outcome", covariant=True)

BATCH_QUESTIONS = 32
"""The number of questions that an actor gets at a time. Progress advances in steps of this size."""
MIN_QUESTIONS_TO_START_RAY = 2_000
"""The number of questions from which `auto` uses Ray. This process answers fewer before Ray would have started."""
MIN_QUESTIONS_FOR_A_CLUSTER = 200
"""The same limit if a cluster is already running, so that only the actors must start."""
QUESTIONS = pa.schema([("question", pa.large_binary())])
OUTCOMES = pa.schema([("outcome", pa.large_binary())])


class QuestionTask(Protocol[Outcome]):
    """The work for each question. It is pickled, and run by `callers` threads of each process."""

    @property
    def settings(self) -> Settings: ...

    @property
    def callers(self) -> int: ...

    def load(self, knowledge: KnowledgeBase) -> None:
        """Loads the models before the first question."""

    def run(self, knowledge: KnowledgeBase, question: Question) -> Outcome: ...


def run_questions(task: QuestionTask[Outcome], questions: Sequence[Question], runner: RunnerName) -> Iterator[Outcome]:
    """Yields the outcomes as they are complete, in any order. `auto` uses Ray for many questions."""
    min_questions = MIN_QUESTIONS_FOR_A_CLUSTER if "RAY_ADDRESS" in os.environ else MIN_QUESTIONS_TO_START_RAY
    inline = len(questions) < min_questions if runner is RunnerName.auto else runner is RunnerName.inline
    return (run_inline if inline else run_on_ray)(task, questions)


def run_inline(task: QuestionTask[Outcome], questions: Sequence[Question]) -> Iterator[Outcome]:
    """Runs the questions in this process, and yields the outcomes in the order of the questions."""
    with KnowledgeBase(task.settings) as knowledge, ThreadPoolExecutor(task.callers) as threads:
        task.load(knowledge)
        yield from threads.map(partial(task.run, knowledge), questions)


def run_on_ray(task: QuestionTask[Outcome], questions: Sequence[Question]) -> Iterator[Outcome]:
    """Runs the questions in Ray actors, and yields the outcomes in the order in which they are completed."""
    with redirect_native_errors():
        start_ray()
        import ray

        rows = pa.table({"question": list(map(pickle.dumps, questions))}, schema=QUESTIONS)
        blocks = [rows.slice(first, BATCH_QUESTIONS) for first in range(0, len(rows), BATCH_QUESTIONS)]
        cpus = count_cpus(UNLIMITED)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own code causes the warnings
            outcomes = ray.data.from_arrow(blocks).map_batches(
                QuestionActor,
                fn_constructor_args=(task,),
                batch_format="pyarrow",
                batch_size=None,
                num_cpus=actor_cpus(cpus),
                compute=ray.data.ActorPoolStrategy(size=min(cpus, len(blocks))),
            )
            batches: Iterator[Any] = iter(outcomes.iter_batches(batch_size=None, batch_format="pyarrow"))
            with translate_ray_errors():
                for batch in batches:
                    yield from map(pickle.loads, batch["outcome"].to_pylist())


class QuestionActor:
    """An actor that holds the knowledge base, with its models."""

    def __init__(self, task: QuestionTask[Any]) -> None:
        self._task, self._resources = task, ExitStack()
        self._knowledge = self._resources.enter_context(KnowledgeBase(task.settings))
        self._task.load(self._knowledge)
        self._threads = self._resources.enter_context(ThreadPoolExecutor(task.callers))

    def __call__(self, batch: pa.Table) -> pa.Table:
        questions = map(pickle.loads, batch["question"].to_pylist())
        outcomes = self._threads.map(partial(self._task.run, self._knowledge), questions)
        return pa.table({"outcome": list(map(pickle.dumps, outcomes))}, schema=OUTCOMES)

    def __del__(self) -> None:
        """Closes the knowledge base. Ray Data deletes this object when it no longer needs the actor."""
        self._resources.close()
