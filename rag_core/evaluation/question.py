"""The questions and the documents of a dataset."""

from dataclasses import dataclass

from rag_core.evaluation.metrics import Grades
from rag_core.evaluation.spans import Span
from rag_core.types import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with what is known about its answer.

    `references` are right answers, of which the best counts. `answerable` says whether the corpus answers it; None if
    that is unknown, or true only in part. `history` holds the earlier messages of its conversation, oldest first.
    `rewrite` is the question in words that need no history; empty if the dataset has none.
    """

    id: str
    text: str
    grades: Grades
    spans: tuple[Span, ...] = ()
    references: tuple[str, ...] = ()
    answerable: bool | None = None
    history: tuple[Message, ...] = ()
    rewrite: str = ""

    @property
    def turn(self) -> int:
        """The position among the questions of its conversation, from 1."""
        return 1 + sum(message.role == "user" for message in self.history)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusDocument:
    """A document of a dataset."""

    id: str
    text: str
    title: str = ""
