"""ragas against a scripted OpenAI-compatible server: values, failures and what does not apply."""

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jobs.answer_scores import add_scores, build_score_journal, score_answers
from jobs.ingest import RunnerName
from jobs.ragas_scores import RagasTask, list_ragas_inputs
from jobs.row_runner import ROWS, RowActor
from rag_core.evaluation.answer_measures import MeasuredAnswer
from rag_core.evaluation.answer_report import evaluate_answers
from rag_core.evaluation.answer_traces import AnswerTrace, PassageText, StatedSentence
from rag_core.evaluation.question import Question
from rag_core.types import Matrix

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

ANSWER = MeasuredAnswer(
    question=Question(id="q1", text="When?", grades={}, references=("At nine.",), answerable=True),
    trace=AnswerTrace(
        question="q1",
        seconds=1.0,
        sentences=(StatedSentence(text="At nine, by Bob.", quotes=()),),
        passages=(PassageText(uri="a", text="It opens at nine."), PassageText(uri="b", text="Seals.")),
    ),
)
REPLIES: Mapping[str, Mapping[str, Any]] = {
    "StatementGeneratorOutput": {"statements": ["It opens at nine.", "Bob opens it."]},
    "NLIStatementOutput": {
        "statements": [
            {"statement": "It opens at nine.", "reason": "", "verdict": 1},
            {"statement": "Bob opens it.", "reason": "", "verdict": 0},
        ]
    },
    "AnswerRelevanceOutput": {"question": "When does it open?", "noncommittal": 0},
    "ContextPrecisionOutput": {"reason": "", "verdict": 1},
    "ContextRecallOutput": {"classifications": [{"statement": "At nine.", "reason": "", "attributed": 1}]},
}


class Embedder:
    async def embed(self, texts: Sequence[str]) -> Matrix:
        return np.array([[1.0, 0.0] if text == "When?" else [0.6, 0.8] for text in texts], np.float32)


def ragas_task(url: str) -> RagasTask:
    return RagasTask(url=url, model="scripted", load_embedder=Embedder)


def score(task: RagasTask, *answers: MeasuredAnswer) -> list[MeasuredAnswer]:
    journal = build_score_journal(None, task)
    return add_scores(answers, score_answers(task, answers, RunnerName.inline, journal))


class ScriptedModel(ThreadingHTTPServer):
    """Replies by the schema that the request names; with an unreadable text if `garbage`."""

    garbage = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        Thread(target=self.serve_forever, daemon=True).start()

    @property
    def task(self) -> RagasTask:
        return ragas_task(f"http://127.0.0.1:{self.server_port}/v1")


class Handler(BaseHTTPRequestHandler):
    server: ScriptedModel

    def do_POST(self) -> None:
        request = self.rfile.read(int(self.headers["Content-Length"])).decode()
        (reply,) = [reply for schema, reply in REPLIES.items() if f'\\"title\\": \\"{schema}\\"' in request]
        content = "Well." if self.server.garbage else json.dumps(reply)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
        usage = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
        names = {"id": "1", "object": "chat.completion", "created": 0, "model": "scripted"}
        body = {**names, "choices": [choice], "usage": usage}
        payload = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def model() -> Any:
    with ScriptedModel() as server:
        yield server
        server.shutdown()


@pytest.mark.slow
def test_the_four_measures_are_what_the_model_s_replies_make_them(model: ScriptedModel) -> None:
    (scored,) = score(model.task, ANSWER)
    assert scored.failures == {}
    assert scored.measures == {
        "ragas_faithfulness": 0.5,
        "ragas_answer_relevancy": pytest.approx(0.6),
        "ragas_context_precision": pytest.approx(1.0),
        "ragas_context_recall": 1.0,
    }


def test_the_calls_of_an_answer_and_their_tokens_are_counted(model: ScriptedModel) -> None:
    journal = build_score_journal(None, model.task)
    for scores in score_answers(model.task, [ANSWER, ANSWER], RunnerName.inline, journal):
        # 2 for the faithfulness, 1 for the relevancy, 2 for the precision of 2 contexts, 1 for the recall
        assert (scores.calls, scores.prompt_tokens, scores.completion_tokens) == (6, 600, 42)


def test_an_actor_scores_a_batch_of_pickled_answers(model: ScriptedModel) -> None:
    (task,) = map(pickle.loads, [pickle.dumps(model.task)])
    batch = pa.table({"row": [pickle.dumps(ANSWER)] * 2}, schema=ROWS)
    outcomes = map(pickle.loads, RowActor(task)(batch)["outcome"].to_pylist())
    assert [scores.measures["ragas_faithfulness"] for scores in outcomes] == [0.5, 0.5]


def test_a_run_that_is_continued_scores_no_answer_twice(model: ScriptedModel, tmp_path: Path) -> None:
    journal = build_score_journal(tmp_path, model.task)
    first = list(score_answers(model.task, [ANSWER], RunnerName.inline, journal))
    model.garbage = True
    assert list(score_answers(model.task, [ANSWER], RunnerName.inline, journal)) == first


def test_a_model_that_answers_garbage_is_a_failed_sample_and_no_number(model: ScriptedModel) -> None:
    model.garbage = True
    scored = score(model.task, ANSWER)
    assert scored[0].measures == {}
    assert set(scored[0].failures) == set(list_ragas_inputs(ANSWER))
    assert not any("Connection" in reason for reason in scored[0].failures.values())
    evaluation = evaluate_answers(scored)
    assert {summary.coverage for summary in evaluation.measures.values()} == {0.0}
    assert not evaluation.is_valid


def test_missing_inputs_are_reasons_and_refusals_have_only_contexts() -> None:
    refused = replace(ANSWER, trace=replace(ANSWER.trace, finish="abstained"))
    assert list(list_ragas_inputs(refused)) == ["ragas_context_precision", "ragas_context_recall"]
    unanswerable = replace(ANSWER, question=replace(ANSWER.question, answerable=False))
    assert list_ragas_inputs(unanswerable) == {}
    empty = replace(ANSWER, trace=replace(ANSWER.trace, passages=()))
    (scored,) = score(ragas_task("http://127.0.0.1:9/v1"), empty)
    assert scored.failures["ragas_context_recall"] == "retrieved_contexts must not be empty"


def test_a_question_that_failed_fails_with_its_own_reason(model: ScriptedModel) -> None:
    failed = replace(ANSWER, trace=AnswerTrace(question="q1", seconds=1.0, error="GenerationError: down"))
    (scored,) = score(model.task, failed)
    assert set(scored.failures.values()) == {"GenerationError: down"}
