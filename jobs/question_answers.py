"""The answers to a dataset's questions, from the very pipeline of a profile; an interrupted run is continued."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from jobs.ingest import RunnerName
from jobs.journal import Journal
from jobs.question_runner import run_questions
from jobs.retrieval_traces import use_open_store
from rag_core.config import ExtractiveGenerator, Settings
from rag_core.errors import RagError, describe_error
from rag_core.evaluation.answer_traces import AnswerTrace, trace_reply
from rag_core.evaluation.conversation_mode import ConversationMode
from rag_core.evaluation.question import Question
from rag_core.knowledge_base import KnowledgeBase
from rag_core.storage.postgres import Postgres
from rag_core.types import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTask:
    """The pipeline that answers, and its collection.

    `uris` holds, by question, the only documents that it searches; a question without any searches all. Each process
    answers `callers` questions concurrently. `mode` says how a question with a history is asked.
    """

    settings: Settings
    collection: str
    uris: Mapping[str, Sequence[str]] = field(default_factory=dict)
    callers: int = 1
    mode: ConversationMode = ConversationMode.fused

    @classmethod
    def build(
        cls,
        settings: Settings,
        postgres: Postgres,
        collection: str,
        uris: Mapping[str, Sequence[str]],
        callers: int,
        mode: ConversationMode = ConversationMode.fused,
    ) -> Self:
        open_settings = use_open_store(settings, postgres)
        return cls(settings=open_settings, collection=collection, uris=uris, callers=callers, mode=mode)

    def load(self, knowledge: KnowledgeBase) -> None:
        knowledge.load(answering=True)

    def run(self, knowledge: KnowledgeBase, question: Question) -> AnswerTrace:
        started, filters = time.perf_counter(), filter_documents(self.uris.get(question.id, ()))
        try:
            reply = self._ask(knowledge, question, filters)
        except RagError as error:
            seconds = time.perf_counter() - started
            return AnswerTrace(question=question.id, seconds=seconds, error=describe_error(error))
        return trace_reply(question.id, reply)

    def _ask(self, knowledge: KnowledgeBase, question: Question, filters: dict[str, Any] | None) -> Reply:
        """Asks a rewrite without the history, and without the question that it stands for."""
        match self.mode:
            case ConversationMode.raw:
                text = question.text
            case ConversationMode.rewritten:
                text = knowledge.rewrite(question.text, question.history, self.collection)
            case ConversationMode.gold:
                text = question.rewrite or question.text
            case ConversationMode.fused:
                return knowledge.ask(question.text, self.collection, filters, history=question.history)
        return knowledge.ask(text, self.collection, filters)


def filter_documents(uris: Sequence[str]) -> dict[str, Any] | None:
    """The filter that only these documents pass; None, which all pass, for no uris."""
    return {"type": "in", "key": "uri", "value": list(uris)} if uris else None


def answer_questions(
    task: AnswerTask, questions: Sequence[Question], runner: RunnerName, journal: Journal[AnswerTrace]
) -> Iterator[AnswerTrace]:
    """Yields the answers of the journal, and then the others as they are complete. The journal gets these."""
    finished = journal.read()
    yield from (finished[question.id] for question in questions if question.id in finished)
    remaining = [question for question in questions if question.id not in finished]
    with journal.appending() as append:
        for trace in run_questions(task, remaining, runner) if remaining else ():
            append(trace)
            yield trace


def describe_judge(settings: Settings) -> dict[str, Any]:
    """The type of the judge that grades answers, and its model or class if it has one."""
    if isinstance(settings.generation, ExtractiveGenerator):
        return {"type": "verbatim"}
    return describe_configured_judge(settings)


def describe_configured_judge(settings: Settings) -> dict[str, Any]:
    """The type of `guard.judge`, and its model or class if it has one."""
    judge = settings.guard.judge.model_dump(mode="json")
    return {name: judge[name] for name in ("type", "model", "class") if judge.get(name)}
