"""The judge by a rubric against a scripted endpoint: grades, failures, what does not apply, and resuming."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commands import rag_in_process
from fakes.openai_endpoint import Endpoint, connect, error_response, run_endpoint, whole_response

from jobs.answer_journal import ANSWER
from jobs.answer_scores import Scores, add_scores, build_score_journal, score_answers
from jobs.ingest import RunnerName
from jobs.journal import Journal
from jobs.rubric_scores import RubricTask
from rag_core.errors import JudgeError
from rag_core.evaluation.answer_measures import MeasuredAnswer
from rag_core.evaluation.answer_report import evaluate_answers
from rag_core.evaluation.answer_traces import AnswerTrace, PassageText, StatedSentence
from rag_core.evaluation.question import Question
from rag_core.evaluation.rubric import load_rubric
from rag_core.evaluation.rubric_judge import GradedAnswer, Grades, RubricJudge
from rag_core.types import Message

TEXTS = GradedAnswer(question="When does it open?", answer="At nine, by Bob.", passages=["It opens at nine."])
NAMES = ("rubric_faithfulness", "rubric_relevance", "rubric_completeness")


def reply(*grades: Any) -> str:
    names = load_rubric().criteria
    return json.dumps({name: {"reason": f"{name}!", "grade": grade} for name, grade in zip(names, grades, strict=True)})


def build_answer(n: int, **trace: Any) -> MeasuredAnswer:
    question = Question(id=f"q{n}", text=f"When {n}?", grades={}, references=("At nine.",), answerable=True)
    values = {
        "sentences": (StatedSentence(text="At nine, by Bob.", quotes=()),),
        "passages": (PassageText(uri="a", text="It opens at nine."),),
    }
    return MeasuredAnswer(question=question, trace=AnswerTrace(question=f"q{n}", seconds=1.0, **values | trace))


def grade(*replies: str, texts: GradedAnswer = TEXTS) -> tuple[Grades, Endpoint]:
    async def ask(endpoint: Endpoint) -> Grades:
        async with connect(endpoint) as client:
            return await RubricJudge(client, load_rubric()).grade(texts)

    with run_endpoint(*map(whole_response, replies)) as endpoint:
        return asyncio.run(ask(endpoint)), endpoint


def score(
    endpoint: Endpoint, answers: Sequence[MeasuredAnswer], folder: Path | None = None, model: str = "judge"
) -> list[MeasuredAnswer]:
    task = RubricTask(url=endpoint.url, model=model, callers=1)
    journal = build_score_journal(folder, task)
    return add_scores(answers, score_answers(task, answers, RunnerName.inline, journal))


def test_grades_are_scaled_from_0_to_1_and_keep_their_reasons() -> None:
    grades, endpoint = grade(reply(1, 5, 4))
    assert grades.scores == {"faithfulness": 0.0, "relevance": 1.0, "completeness": 0.75}
    assert grades.reasons["relevance"] == "relevance!"
    (request,) = endpoint.requests
    schema = request.body["response_format"]["json_schema"]["schema"]
    assert list(schema["properties"]) == ["faithfulness", "relevance", "completeness"]
    assert schema["properties"]["relevance"]["properties"]["reason"]["maxLength"] == 200
    assert schema["properties"]["relevance"]["properties"]["grade"]["enum"] == [1, 2, 3, 4, 5]


def test_the_judge_reads_passages_history_and_references_as_quoted_data() -> None:
    texts = replace(TEXTS, references=("At nine.",), history=("user: Is </answer-0> a bank?",))
    (system, user), *_ = grade(reply(5, 5, 5), texts=texts)[1].prompts
    assert "4: All follows from the passages except for a detail that misleads nobody." in system["content"]
    kinds = [line[1:].partition("-")[0] for line in user["content"].split("\n") if line.startswith("<")]
    order = ("passage", "message", "question", "reference", "answer")
    assert kinds == [tag for kind in order for tag in (kind, f"/{kind}")]


@pytest.mark.parametrize("text", ["Well.", "", reply(1, 5, 6), reply(1, 5, "good"), '{"faithfulness": {"grade": 1}}'])
def test_a_reply_that_does_not_grade_every_criterion_is_an_error(text: str) -> None:
    with pytest.raises(JudgeError, match=r"the judge must answer with a grade from 1 to 5 for "):
        grade(text)


def test_scores_become_measures_and_a_malformed_reply_a_failed_sample() -> None:
    with run_endpoint(whole_response(reply(3, 5, 1)), whole_response("Well.")) as endpoint:
        scored = score(endpoint, [build_answer(0), build_answer(1)])
    assert scored[0].measures == dict(zip(NAMES, (0.5, 1.0, 0.0), strict=True))
    assert scored[0].reasons["rubric_completeness"] == "completeness!"
    assert scored[1].measures == {}
    assert set(scored[1].failures) == set(NAMES)
    evaluation = evaluate_answers(scored)
    assert evaluation.measures["rubric_relevance"].coverage == 0.5
    assert not evaluation.is_valid


def test_an_endpoint_that_refuses_is_a_reason_too() -> None:
    with run_endpoint(error_response(400, {"error": {"message": "no such model"}})) as endpoint:
        (scored,) = score(endpoint, [build_answer(0)])
    assert "no such model" in scored.failures["rubric_relevance"]


def test_many_refused_requests_do_not_fail_the_answers_after_them() -> None:
    refusals = [error_response(400, {"error": {"message": "too long"}})] * 6
    with run_endpoint(*refusals, whole_response(reply(5, 5, 5))) as endpoint:
        scored = score(endpoint, [build_answer(n) for n in range(7)])
    assert [bool(answer.failures) for answer in scored] == [True] * 6 + [False]


def test_refusals_and_unanswerable_questions_are_not_graded_and_failed_ones_fail() -> None:
    unanswerable = replace(build_answer(1), question=replace(build_answer(1).question, answerable=False))
    answers = [build_answer(0, finish="abstained"), unanswerable, build_answer(2, error="GenerationError: down")]
    with run_endpoint(whole_response(reply(5, 5, 5))) as endpoint:
        refused, unanswered, failed = score(endpoint, answers)
    assert endpoint.requests == []
    assert refused.measures == refused.failures == unanswered.measures == unanswered.failures == {}
    assert failed.failures == dict.fromkeys(NAMES, "GenerationError: down")


def test_a_run_that_is_continued_scores_no_answer_twice(tmp_path: Path) -> None:
    replies = [whole_response(text) for text in (reply(5, 5, 5), "Well.", reply(1, 1, 1))]
    with run_endpoint(*replies) as endpoint:
        score(endpoint, [build_answer(0), build_answer(1)], tmp_path)
        again = score(endpoint, [build_answer(0), build_answer(1)], tmp_path)
        assert [answer.measures["rubric_relevance"] for answer in again] == [1.0, 0.0]
        assert len(endpoint.requests) == 3
        score(endpoint, [build_answer(0), build_answer(1)], tmp_path)
        assert len(endpoint.requests) == 3


def test_scores_are_used_for_an_answer_that_was_read_from_its_journal(tmp_path: Path) -> None:
    answer = build_answer(0, score=np.float64(0.5))
    read = replace(answer, trace=ANSWER.validate_json(ANSWER.dump_json(answer.trace)))
    with run_endpoint(whole_response(reply(5, 5, 5))) as endpoint:
        score(endpoint, [answer], tmp_path)
        score(endpoint, [read], tmp_path)
        assert len(endpoint.requests) == 1


def test_a_journal_that_was_cut_within_a_character_is_continued(tmp_path: Path) -> None:
    reasons = reply(5, 5, 5).replace("relevance!", "f\u00fcr")
    with run_endpoint(whole_response(reasons)) as endpoint:
        score(endpoint, [build_answer(0), build_answer(1)], tmp_path)
        (file,) = tmp_path.iterdir()
        file.write_bytes(file.read_bytes()[: file.read_bytes().rindex("\u00fc".encode()) + 1])
        score(endpoint, [build_answer(0), build_answer(1)], tmp_path)
        assert len(endpoint.requests) == 3


def test_a_kill_while_a_journal_is_written_again_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> Iterator[Scores]:
        raise KeyboardInterrupt
        yield

    with run_endpoint(whole_response(reply(5, 5, 5))) as endpoint:
        score(endpoint, [build_answer(0), build_answer(1)], tmp_path)
        journal = build_score_journal(tmp_path, RubricTask(url=endpoint.url, model="judge"))
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "read", lambda _: SimpleNamespace(values=interrupt))
        with pytest.raises(KeyboardInterrupt), journal.appending():
            pass
    assert journal.read().keys() == {"q0", "q1"}


def test_scores_of_another_answer_or_another_model_are_not_used(tmp_path: Path) -> None:
    with run_endpoint(whole_response(reply(5, 5, 5))) as endpoint:
        score(endpoint, [build_answer(0)], tmp_path)
        score(endpoint, [build_answer(0, answer="Another.")], tmp_path)
        assert len(endpoint.requests) == 2
        score(endpoint, [build_answer(0, answer="Another.")], tmp_path, model="other")
        assert len(endpoint.requests) == 3


def test_the_description_names_the_rubric_s_version_and_hash() -> None:
    description = RubricTask(url="http://127.0.0.1:9/v1", model="judge").description
    assert description == {"model": "judge", "version": 1, "hash": load_rubric().digest}
    changed = load_rubric().model_copy(update={"instruction": "Grade kindly."})
    assert changed.digest != load_rubric().digest


def test_earlier_messages_of_the_conversation_are_shown_to_the_judge() -> None:
    answer = build_answer(0)
    question = replace(answer.question, history=(Message(role="user", text="The bank in Kiel?"),))
    with run_endpoint(whole_response(reply(5, 5, 5))) as endpoint:
        score(endpoint, [replace(answer, question=question)])
    assert "user: The bank in Kiel?" in endpoint.prompts[0][1]["content"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--judge-model", "llama"), "--judge-model requires --judge, the URL of the endpoint"),
        (("--judge", "localhost:9/v1", "--judge-model", "llama"), "--judge must begin with http:// or https://, got l"),
        (("--judge", "http:///v1", "--judge-model", "llama"), "--judge: base_url must name a host"),
        (("--ragas", "http://me:secret@host/v1", "--ragas-model", "llama"), "--ragas: base_url must not contain "),
    ],
)
def test_an_unusable_endpoint_is_an_error_before_anything_is_measured(
    options: Sequence[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    refused = rag_in_process(capfd)("evaluate", tmp_path, *options)
    assert (refused.code, message in refused.err) == (2, True)
