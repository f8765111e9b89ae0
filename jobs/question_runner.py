"""Many questions to a knowledge base, for evaluation: in this process, or in actors of Ray Data."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from jobs.ingest import RunnerName
from jobs.row_runner import run_rows
from rag_core.config import Settings
from rag_core.evaluation.question import Question
from rag_core.knowledge_base import KnowledgeBase

Outcome = TypeVar("Outcome", covariant=True)


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
    return run_rows(QuestionRows(task), questions, runner)


@dataclass(frozen=True, slots=True)
class QuestionRows:
    """A RowTask whose rows are questions to the knowledge base of another task."""

    task: QuestionTask[Any]

    @property
    def callers(self) -> int:
        return self.task.callers

    @contextmanager
    def open(self) -> Iterator[Callable[[Question], Any]]:
        with KnowledgeBase(self.task.settings) as knowledge:
            self.task.load(knowledge)
            yield partial(self.task.run, knowledge)
