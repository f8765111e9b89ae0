"""Scorers of answers through a real engine that writes garbage: values or reasons, and nothing else."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from engine import MODEL
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tiny_llama import WINDOW

from jobs.answer_scores import ScoreTask, add_scores, build_score_journal, score_answers
from jobs.ingest import RunnerName
from jobs.ragas_scores import RagasTask, list_ragas_inputs, load_embedder
from jobs.rubric_scores import RubricTask
from rag_core.config import Settings
from rag_core.evaluation.answer_measures import MeasuredAnswer
from rag_core.evaluation.answer_report import answers_to_json, evaluate_answers
from rag_core.evaluation.answer_traces import AnswerTrace, PassageText, StatedSentence
from rag_core.evaluation.question import Question
from serve.models.llm import HandleTransport, chat_call

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.postgres,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),
]

REQUESTS = 2
"""The requests that the engine works on at a time; it rejects more than twice as many."""


@pytest.fixture
def endpoint(deployment: "DeploymentHandle") -> Iterator[str]:
    """The engine as an OpenAI-compatible endpoint over HTTP."""
    slots = asyncio.Semaphore(REQUESTS)

    async def complete(request: Request) -> Response:
        body = await request.json()
        async with slots:
            texts = [text async for text in HandleTransport(chat_call(deployment), MODEL).open(body)]
        return Response("".join(texts), media_type="application/json")

    app = Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.005)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
    server.should_exit = True
    thread.join()


def answer_from(id: str, passage: str) -> MeasuredAnswer:
    question = Question(id=id, text="When?", grades={}, references=("At nine.",), answerable=True)
    trace = AnswerTrace(
        question=id,
        seconds=1.0,
        sentences=(StatedSentence(text="At nine.", quotes=()),),
        passages=(PassageText(uri="a", text=passage),),
    )
    return MeasuredAnswer(question=question, trace=trace)


def score(task: ScoreTask, *answers: MeasuredAnswer) -> list[MeasuredAnswer]:
    return add_scores(answers, score_answers(task, answers, RunnerName.inline, build_score_journal(None, task)))


def test_a_random_model_grades_by_the_rubric_and_a_prompt_that_is_too_long_is_a_failed_sample(endpoint: str) -> None:
    task = RubricTask(url=endpoint, model=MODEL)
    short, long = score(task, answer_from("short", "It opens at nine."), answer_from("long", "x" * WINDOW))
    assert list(short.measures) == ["rubric_faithfulness", "rubric_relevance", "rubric_completeness"]
    assert set(short.measures.values()) <= {0.0, 0.25, 0.5, 0.75, 1.0}
    assert all(len(reason) <= 200 for reason in short.reasons.values())
    assert long.measures == {}
    assert f"maximum context length is {WINDOW} tokens" in long.failures["rubric_relevance"]
    evaluation = evaluate_answers([short, long])
    assert (evaluation.coverage, evaluation.is_valid) == (0.5, False)


def test_garbage_is_a_failed_sample_of_every_ragas_measure_and_nothing_is_reported_to_ragas(
    endpoint: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    posts: list[Any] = []
    monkeypatch.setattr("requests.post", lambda *arguments, **_: posts.append(arguments))
    monkeypatch.setattr("jobs.ragas_scores.MAX_TOKENS", 200)  # the window is short, and garbage never ends
    load = partial(load_embedder, settings.embedding)
    answers = [answer_from(str(n), "It opens at nine.") for n in range(2)]
    scored = score(RagasTask(url=endpoint, model=MODEL, load_embedder=load), *answers)
    assert [answer.measures for answer in scored] == [{}, {}]
    assert [answer.failures.keys() for answer in scored] == [list_ragas_inputs(answer).keys() for answer in answers]
    evaluation = evaluate_answers(scored)
    assert {summary.coverage for summary in evaluation.measures.values()} == {0.0}
    assert {measure["mean"] for measure in answers_to_json(evaluation)["measures"].values()} == {None}
    assert not evaluation.is_valid
    assert os.environ["RAGAS_DO_NOT_TRACK"] == "true"
    assert posts == []
