"""Datasets with reference answers, in the layouts that they are published in."""

import json
from pathlib import Path

import pytest
from trees import write

from rag_core.errors import DatasetError
from rag_core.evaluation.dataset import read_corpus, read_dataset
from rag_core.evaluation.question import CorpusDocument, Question
from rag_core.evaluation.spans import Span
from rag_core.types import Message

BEIR = {
    "corpus.jsonl": '{"_id": "d1", "title": "", "text": "The sluice opens at nine."}\n',
    "queries.jsonl": '{"_id": "q1", "text": "When does it open?"}\n',
    "qrels/test.tsv": "q1\td1\t1\n",
}


def test_the_answers_file_adds_references_and_questions_without_an_answer(tmp_path: Path) -> None:
    answers = (
        '{"_id": "q1", "answers": ["nine", "at nine"]}\n{"_id": "q2", "question": "Who built it?", "answerable": false}'
    )
    dataset = read_dataset(write(tmp_path, {**BEIR, "answers.jsonl": answers}))
    answered = Question(
        id="q1", text="When does it open?", grades={"d1": 1}, references=("nine", "at nine"), answerable=True
    )
    assert dataset.questions == (answered,)
    assert dataset.asked == (answered, Question(id="q2", text="Who built it?", grades={}, answerable=False))


def test_a_conversation_has_its_history_and_mt_rag_s_label(tmp_path: Path) -> None:
    rows = [
        {
            "_id": id,
            "question": "And on Sundays?",
            "history": [
                {"role": "user", "content": "When?"},
                {"role": "assistant", "content": "At nine."},
            ],
            "reference": "At ten.",
            "answerability": label,
        }
        for id, label in (("q1", "ANSWERABLE"), ("q2", "PARTIAL"), ("q3", "UNANSWERABLE"), ("q4", "UNDERSPECIFIED"))
    ]
    dataset = read_dataset(write(tmp_path, {**BEIR, "conversations.jsonl": "\n".join(map(json.dumps, rows))}))
    assert [question.answerable for question in dataset.asked] == [True, None, False, None]
    assert dataset.asked[0].text == "When does it open?"
    assert dataset.asked[1].text == "And on Sundays?"
    assert dataset.asked[0].history == (
        Message(role="user", text="When?"),
        Message(role="assistant", text="At nine."),
    )


def test_rewrites_bring_the_user_s_earlier_turns(tmp_path: Path) -> None:
    rewrites = '{"_id": "q1", "user_turns": ["The sluice?\\n", "When?"], "rewrite_mixtral": "When does it open? "}'
    (question,) = read_dataset(write(tmp_path, {**BEIR, "rewrites.jsonl": rewrites})).questions
    assert question.text == "When does it open?"
    assert (question.history, question.rewrite) == ((Message(role="user", text="The sluice?"),), "When does it open?")


def test_rewrites_keep_the_history_of_a_conversation(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "The sluice?"}, {"role": "assistant", "content": "Yes."}]
    row = {"_id": "q1", "question": "When?", "history": messages, "answerability": "ANSWERABLE"}
    rewrites = '{"_id": "q1", "user_turns": ["The sluice?", "When?"], "rewrite_mixtral": "When does it open?"}'
    files = {**BEIR, "conversations.jsonl": json.dumps(row), "rewrites.jsonl": rewrites}
    (question,) = read_dataset(write(tmp_path, files)).questions
    assert (len(question.history), question.rewrite) == (2, "When does it open?")


def test_answer_spans_are_references_too(tmp_path: Path) -> None:
    row = {"_id": "q1", "doc_id": "d1", "question": "When?", "answers": [{"text": "nine", "start": 20, "end": 24}]}
    dataset = read_dataset(
        write(tmp_path, {"documents.jsonl": BEIR["corpus.jsonl"], "questions.jsonl": json.dumps(row)})
    )
    span = Span(document="d1", start=20, end=24)
    assert dataset.asked == (
        Question(id="q1", text="When?", grades={"d1": 1}, spans=(span,), references=("nine",), answerable=True),
    )


def test_each_question_of_clapnq_brings_its_passage(tmp_path: Path) -> None:
    rows = [
        {
            "_id": id,
            "question": "When?",
            "answerable": answerable,
            "passages": [{"title": "Sluice", "text": "It opens at nine."}],
            "references": [{"answer": "At nine."}] if answerable else [],
        }
        for id, answerable in (("q1", True), ("q2", False))
    ]
    dataset = read_dataset(write(tmp_path, {"items.jsonl": "\n".join(map(json.dumps, rows))}))
    assert [question.id for question in dataset.questions] == ["q1"]
    assert [question.grades for question in dataset.asked] == [{"q1": 1}, {"q2": 0}]
    assert next(iter(read_corpus(dataset.corpus))) == CorpusDocument(id="q1", title="Sluice", text="It opens at nine.")


def test_graded_documents_that_are_not_in_the_corpus_are_not_scored(tmp_path: Path) -> None:
    dataset = read_dataset(write(tmp_path, {**BEIR, "qrels/test.tsv": "q1\td1\t1\nq1\tgone\t1\n"}))
    assert dataset.questions[0].grades == {"d1": 1}
    assert dataset.missing == ("gone",)


@pytest.mark.parametrize(
    ("name", "row", "complaint"),
    [
        ("answers.jsonl", {"_id": "q1", "answers": "nine"}, "'answers' must be a list of JSON strings, got 'nine'"),
        ("answers.jsonl", {"_id": "q1", "answers": []}, "'answerable' must be true or false, got None"),
        ("answers.jsonl", {"_id": "q9", "answers": ["a"]}, "'question' is required, because no query has the id 'q9'"),
        (
            "conversations.jsonl",
            {"_id": "q1", "question": "?", "answerability": "MAYBE"},
            "'answerability' must be one of ANSWERABLE, PARTIAL, UNANSWERABLE, UNDERSPECIFIED, got 'MAYBE'",
        ),
        ("rewrites.jsonl", {"_id": "q1", "user_turns": []}, "'user_turns' must have at least one turn"),
        (
            "rewrites.jsonl",
            {"_id": "q9", "user_turns": ["When?"], "rewrite_mixtral": "When?"},
            "no question has the id 'q9'",
        ),
    ],
)
def test_a_line_that_breaks_a_rule_is_named(tmp_path: Path, name: str, row: object, complaint: str) -> None:
    with pytest.raises(DatasetError) as refused:
        read_dataset(write(tmp_path, {**BEIR, name: json.dumps(row)}))
    assert str(refused.value) == f"{tmp_path / name}:1: {complaint}"
