"""Answers to many questions in this process, with a scripted knowledge base: resuming, failures and files."""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.answer_files import write_answers
from jobs.answer_journal import ANSWER
from jobs.ingest import RunnerName
from jobs.journal import Journal
from jobs.question_answers import AnswerTask, answer_questions
from jobs.question_runner import QuestionRows
from jobs.row_runner import ROWS, RowActor
from rag_core.errors import RagError
from rag_core.evaluation.answer_measures import measure_answer
from rag_core.evaluation.answer_traces import AnswerTrace
from rag_core.evaluation.question import Question
from rag_core.settings import load_settings
from rag_core.types import Answer, Message, Query, Reply

QUESTIONS = [
    Question(id=f"q{n}", text=f"Question {n}?", grades={}, references=("no idea",), answerable=True) for n in range(5)
]


@dataclass
class ScriptedKnowledge:
    """Answers every question, except that a text in `errors` raises. `calls` holds the arguments of each call."""

    errors: dict[str, BaseException] = field(default_factory=dict)
    calls: list[tuple[str, Mapping[str, Any] | None, Sequence[Message]]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def load(self, answering: bool = False) -> None: ...

    def ask(
        self, question: str, collection: str, filters: Mapping[str, Any] | None = None, history: Sequence[Message] = ()
    ) -> Reply:
        self.calls.append((question, filters, history))
        if question in self.errors:
            raise self.errors[question]
        query = Query(text=question, collection=collection)
        return Reply(query=query, standalone=question, answer=Answer(text="No idea.", finish="stop"))


@pytest.fixture
def knowledge(monkeypatch: pytest.MonkeyPatch) -> ScriptedKnowledge:
    scripted = ScriptedKnowledge()
    monkeypatch.setattr("jobs.question_runner.KnowledgeBase", lambda settings: scripted)  # noqa: ARG005
    return scripted


def answer_all(path: Path | None, key: str = "key", **options: Any) -> dict[str, AnswerTrace]:
    task = AnswerTask(settings=load_settings(environment={}), collection="docs", **options)
    journal = Journal(path=path, key=key, kind=ANSWER)
    return {trace.question: trace for trace in answer_questions(task, QUESTIONS, RunnerName.inline, journal)}


def test_a_run_that_was_killed_asks_no_question_twice(knowledge: ScriptedKnowledge, tmp_path: Path) -> None:
    path = tmp_path / "answers.partial.jsonl"
    knowledge.errors = {"Question 3?": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        answer_all(path)
    knowledge.errors, knowledge.calls = {}, []
    resumed = answer_all(path)
    assert [text for text, *_ in knowledge.calls] == ["Question 3?", "Question 4?"]
    assert {id: trace.answer for id, trace in resumed.items()} == {f"q{n}": "No idea." for n in range(5)}
    knowledge.calls = []
    assert answer_all(path) == resumed
    assert knowledge.calls == []


def test_answers_of_another_pipeline_and_half_a_line_are_not_used(knowledge: ScriptedKnowledge, tmp_path: Path) -> None:
    path = tmp_path / "answers.partial.jsonl"
    answer_all(path)
    path.write_text(path.read_text()[:-20])
    knowledge.calls = []
    answer_all(path)
    assert [text for text, *_ in knowledge.calls] == ["Question 4?"]
    knowledge.calls = []
    answer_all(path, key="another")
    assert len(knowledge.calls) == 5


def test_a_question_that_failed_is_a_trace_and_is_asked_again(knowledge: ScriptedKnowledge, tmp_path: Path) -> None:
    path = tmp_path / "answers.partial.jsonl"
    knowledge.errors = {"Question 1?": RagError("no model")}
    assert answer_all(path)["q1"].error == "RagError: no model"
    knowledge.errors, knowledge.calls = {}, []
    assert answer_all(path)["q1"].error == ""
    assert [text for text, *_ in knowledge.calls] == ["Question 1?"]


def test_an_actor_answers_a_batch_of_pickled_questions(knowledge: ScriptedKnowledge) -> None:
    task = AnswerTask(settings=load_settings(environment={}), collection="docs", uris={"q1": ["file:///a.md"]})
    (received,) = map(pickle.loads, [pickle.dumps(task)])
    actor = RowActor(QuestionRows(received))
    batch = pa.table({"row": list(map(pickle.dumps, QUESTIONS[:2]))}, schema=ROWS)
    outcomes = list(map(pickle.loads, actor(batch)["outcome"].to_pylist()))
    assert [(trace.question, trace.answer) for trace in outcomes] == [("q0", "No idea."), ("q1", "No idea.")]
    assert len(knowledge.calls) == 2


def test_own_documents_are_a_filter(knowledge: ScriptedKnowledge) -> None:
    answer_all(None, uris={"q1": ["file:///a.md"], "q2": []})
    filters = {text: filters for text, filters, _ in knowledge.calls}
    assert filters["Question 1?"] == {"type": "in", "key": "uri", "value": ["file:///a.md"]}
    assert filters["Question 0?"] is filters["Question 2?"] is None


def test_the_file_has_a_row_per_question_with_measures_or_reasons(knowledge: ScriptedKnowledge, tmp_path: Path) -> None:
    knowledge.errors = {"Question 1?": RagError("no model")}
    traces = answer_all(None)
    write_answers(
        tmp_path,
        [measure_answer(question, traces[question.id]) for question in QUESTIONS[:2]],
        str,
        {"q1": "pool_miss"},
    )
    first, second = pq.read_table(tmp_path / "answers.parquet").to_pylist()
    assert (first["question_id"], first["answer"], first["references"]) == ("q0", "No idea.", ["no idea"])
    assert dict(first["measures"])["exact_match"] == 1.0
    assert dict(second["failures"])["exact_match"] == "RagError: no model"
    assert second["measures"] == []
    assert [first["failure"], second["failure"]] == [None, "pool_miss"]
