"""The grades of a language model by the rubric, through any OpenAI-compatible endpoint.

rubric_faithfulness, rubric_relevance, rubric_completeness   answers that are not refusals, unless the question is
                                                             known to be unanswerable
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from jobs.answer_scores import Scores, run_in_thread, start_scores
from rag_core.config import Endpoint
from rag_core.errors import RagError, describe_error
from rag_core.evaluation.answer_measures import MeasuredAnswer
from rag_core.evaluation.rubric import load_rubric
from rag_core.evaluation.rubric_judge import GradedAnswer, RubricJudge
from rag_core.models.endpoint import HttpPool
from rag_core.wiring.endpoint import build_client

MAX_REQUESTS = 32
"""The number of answers in progress, in each process."""
TIMEOUT_MS = 120_000
KEY_VARIABLE = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricTask:
    """A ScoreTask of an endpoint and its model."""

    url: str
    model: str
    name: str = "rubric"
    callers: int = MAX_REQUESTS

    @property
    def description(self) -> dict[str, Any]:
        rubric = load_rubric()
        return {"model": self.model, "version": rubric.version, "hash": rubric.digest}

    def open(self) -> AbstractContextManager[Callable[[MeasuredAnswer], Scores]]:
        return run_in_thread(_open_scorer(self))


@dataclass(frozen=True, slots=True)
class RubricScorer:
    judge: RubricJudge

    async def score(self, answer: MeasuredAnswer) -> Scores:
        names, unscored = list_rubric_measures(answer), start_scores(answer)
        if answer.trace.error or not names:
            return replace(unscored, failures=dict.fromkeys(names, answer.trace.error))
        try:
            grades = await self.judge.grade(_select_texts(answer))
        except RagError as error:
            return replace(unscored, failures=dict.fromkeys(names, describe_error(error)), calls=1)
        return replace(
            unscored,
            measures={_measure_name(name): score for name, score in grades.scores.items()},
            reasons={_measure_name(name): reason for name, reason in grades.reasons.items()},
            calls=1,
            prompt_tokens=grades.usage.prompt_tokens if grades.usage else 0,
            completion_tokens=grades.usage.completion_tokens if grades.usage else 0,
        )


def list_rubric_measures(answer: MeasuredAnswer) -> list[str]:
    """The measures that apply."""
    if answer.trace.is_refusal or answer.question.answerable is False:
        return []
    return list(map(_measure_name, load_rubric().criteria))


def _measure_name(criterion: str) -> str:
    return f"rubric_{criterion}"


def _select_texts(answer: MeasuredAnswer) -> GradedAnswer:
    question, trace = answer.question, answer.trace
    return GradedAnswer(
        question=question.text,
        answer=trace.words,
        passages=[passage.text for passage in trace.passages],
        references=question.references,
        history=[f"{message.role}: {message.text}" for message in question.history],
    )


@asynccontextmanager
async def _open_scorer(task: RubricTask) -> AsyncIterator[RubricScorer]:
    endpoint = Endpoint(
        model=task.model, base_url=task.url, api_key_env=KEY_VARIABLE, first_token_timeout_ms=TIMEOUT_MS
    )
    async with aclosing(HttpPool()) as pool:
        # without a circuit breaker: while it is open, all other answers would fail at once
        yield RubricScorer(RubricJudge(build_client(endpoint, pool), load_rubric()))
