"""The scores that models behind an endpoint give to answers; an interrupted run is continued."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from anyio.from_thread import start_blocking_portal
from pydantic import TypeAdapter

from jobs.answer_journal import ANSWER
from jobs.ingest import RunnerName
from jobs.journal import Journal
from jobs.row_runner import RowTask, run_rows
from rag_core.evaluation.answer_measures import MeasuredAnswer
from rag_core.evaluation.question import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The measures of one answer by one scorer, or the reasons why they failed, by measure.

    `answer` is the hash of what was scored. `reasons` are the scorer's own, for its values. `calls` counts the calls of
    a language model, as far as the scorer knows them.
    """

    question: str
    answer: str
    measures: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def error(self) -> str:
        return "; ".join(self.failures.values())


class Scorer(Protocol):
    async def score(self, answer: MeasuredAnswer) -> Scores: ...


class ScoreTask(RowTask[MeasuredAnswer, Scores], Protocol):
    """The scoring of answers. `name` is a word; `description` says what the scores depend on, as JSON values."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> Any: ...


SCORES, QUESTION = TypeAdapter(Scores), TypeAdapter(Question)


def build_score_journal(folder: Path | None, task: ScoreTask) -> Journal[Scores]:
    path = folder and folder / f"{task.name}.partial.jsonl"
    return Journal(path=path, key=f"{task.name} {task.description}", kind=SCORES)


def score_answers(
    task: ScoreTask, answers: Sequence[MeasuredAnswer], runner: RunnerName, journal: Journal[Scores]
) -> Iterator[Scores]:
    """Yields the scores of the journal, and then the others as they are complete. The journal gets these."""
    hashes = {answer.question.id: hash_answer(answer) for answer in answers}
    finished = {id: scores for id, scores in journal.read().items() if scores.answer == hashes.get(id)}
    yield from finished.values()
    remaining = [answer for answer in answers if answer.question.id not in finished]
    with journal.appending() as append:
        for scores in run_rows(task, remaining, runner) if remaining else ():
            append(scores)
            yield scores


def add_scores(answers: Sequence[MeasuredAnswer], scores: Iterable[Scores]) -> list[MeasuredAnswer]:
    """Copies of the answers with the measures, failures and reasons of the scores."""
    by_question = {score.question: score for score in scores}
    return [
        replace(
            answer,
            measures={**answer.measures, **by_question[answer.question.id].measures},
            failures={**answer.failures, **by_question[answer.question.id].failures},
            reasons={**answer.reasons, **by_question[answer.question.id].reasons},
        )
        for answer in answers
    ]


def start_scores(answer: MeasuredAnswer) -> Scores:
    """The scores of an answer before anything is measured."""
    return Scores(question=answer.question.id, answer=hash_answer(answer))


def hash_answer(answer: MeasuredAnswer) -> str:
    """The SHA-256 of the question and the answer with its passages: scores of other ones are not used."""
    return sha256(QUESTION.dump_json(answer.question) + ANSWER.dump_json(answer.trace)).hexdigest()


@contextmanager
def run_in_thread(opening: AbstractAsyncContextManager[Scorer]) -> Iterator[Callable[[MeasuredAnswer], Scores]]:
    """Opens a scorer on an event loop in a separate thread. The function can be called by many threads."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(opening) as scorer:
        yield partial(portal.call, scorer.score)
