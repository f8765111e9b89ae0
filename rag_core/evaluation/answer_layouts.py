"""The files of datasets with reference answers.

Besides BEIR's files there can be one of these, with more questions than queries.jsonl has:

    answers.jsonl        {"_id", "question", "answers": ["..."], "answerable": true}: SQuAD's short answers; `question`
                         is optional if queries.jsonl has the question, and so is `answerable` if there are answers
    conversations.jsonl  {"_id", "question", "history": [{"role", "content"}], "reference", "answerability"}: MT-RAG

The earlier messages of the user, and the questions in words that need no history, can be in this file:

    rewrites.jsonl       {"_id", "user_turns": ["..."], "rewrite_mixtral": "..."}: MT-RAG. The last turn is the question

These layouts have files of their own instead of BEIR's:

    documents.jsonl      as corpus.jsonl, with
    questions.jsonl      {"_id", "doc_id", "question", "answers": [{"text", "start", "end"}]}: COVID-QA's answer spans
    items.jsonl          {"_id", "question", "answerable", "passages": [{"title", "text"}], "references": [{"answer"}]}:
                         ClapNQ. The passage has the question's id, and the grade 0 if it does not answer the question.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rag_core.errors import DatasetError
from rag_core.evaluation.dataset_lines import Row, list_field, read_unique_rows, span_field, string_field
from rag_core.evaluation.question import CorpusDocument, Question
from rag_core.types import Message

ANSWERS, CONVERSATIONS, REWRITES = "answers.jsonl", "conversations.jsonl", "rewrites.jsonl"
SPAN_DOCUMENTS, SPAN_QUESTIONS = "documents.jsonl", "questions.jsonl"
CLAPNQ_ITEMS = "items.jsonl"

ANSWERABILITY = {"ANSWERABLE": True, "PARTIAL": None, "UNANSWERABLE": False, "UNDERSPECIFIED": None}
"""MT-RAG's labels. A question that is underspecified needs a clarification, which is neither."""


def read_answers(folder: Path, questions: Mapping[str, Question]) -> list[Question]:
    """The questions with what the files besides BEIR's say about them, and the questions that only these files have.

    Raises DatasetError if one of these has no text.
    """
    merged = dict(questions)
    for name, parse in ((ANSWERS, parse_answers), (CONVERSATIONS, parse_conversation)):
        path = folder / name
        for location, row in read_unique_rows(path) if path.is_file() else ():
            known = parse(location, row)
            if question := questions.get(known.id):
                known = replace(known, text=question.text, grades=question.grades, spans=question.spans)
            if not known.text:
                raise DatasetError(f"{location}: 'question' is required, because no query has the id {known.id!r}")
            merged[known.id] = known
    path = folder / REWRITES
    for location, row in read_unique_rows(path) if path.is_file() else ():
        known = parse_rewrite(location, row)
        if known.id not in merged:
            raise DatasetError(f"{location}: no question has the id {known.id!r}")
        question = merged[known.id]
        history = question.history or known.history
        merged[known.id] = replace(question, history=history, rewrite=known.rewrite)
    return list(merged.values())


def parse_answers(location: str, row: Row) -> Question:
    references = tuple(list_field(location, row, "answers", str))
    return Question(
        id=string_field(location, row, "_id"),
        text=string_field(location, {"question": "", **row}, "question", empty=True).strip(),
        grades={},
        references=references,
        answerable=_answerable_field(location, row) if "answerable" in row or not references else True,
    )


def parse_conversation(location: str, row: Row) -> Question:
    reference = string_field(location, {"reference": "", **row}, "reference", empty=True).strip()
    label = string_field(location, row, "answerability")
    if label not in ANSWERABILITY:
        raise DatasetError(f"{location}: 'answerability' must be one of {', '.join(ANSWERABILITY)}, got {label!r}")
    return Question(
        id=string_field(location, row, "_id"),
        text=string_field(location, row, "question").strip(),
        grades={},
        references=(reference,) if reference else (),
        answerable=ANSWERABILITY[label],
        history=tuple(_parse_message(location, message) for message in list_field(location, row, "history", dict)),
    )


def parse_rewrite(location: str, row: Row) -> Question:
    turns = list_field(location, row, "user_turns", str)
    if not turns:
        raise DatasetError(f"{location}: 'user_turns' must have at least one turn")
    return Question(
        id=string_field(location, row, "_id"),
        text=turns[-1].strip(),
        grades={},
        history=tuple(Message(role="user", text=turn.strip()) for turn in turns[:-1]),
        rewrite=string_field(location, row, "rewrite_mixtral").strip(),
    )


def read_span_questions(folder: Path) -> list[Question]:
    return [parse_span_question(location, row) for location, row in read_unique_rows(folder / SPAN_QUESTIONS)]


def parse_span_question(location: str, row: Row) -> Question:
    document, answers = string_field(location, row, "doc_id"), list_field(location, row, "answers", dict)
    return Question(
        id=string_field(location, row, "_id"),
        text=string_field(location, row, "question"),
        grades={document: 1},
        spans=tuple(span_field(location, answer, document) for answer in answers),
        references=tuple(string_field(location, answer, "text") for answer in answers),
        answerable=True,
    )


def read_clapnq_questions(folder: Path) -> list[Question]:
    return [parse_clapnq_question(location, row) for location, row in read_unique_rows(folder / CLAPNQ_ITEMS)]


def parse_clapnq_question(location: str, row: Row) -> Question:
    id, answerable = string_field(location, row, "_id"), _answerable_field(location, row)
    references = list_field(location, row, "references", dict)
    return Question(
        id=id,
        text=string_field(location, row, "question"),
        grades={id: int(answerable)},
        references=tuple(string_field(location, reference, "answer") for reference in references),
        answerable=answerable,
    )


def parse_clapnq_passage(location: str, row: Row) -> CorpusDocument:
    passages = list_field(location, row, "passages", dict)
    if len(passages) != 1:
        raise DatasetError(f"{location}: 'passages' must have one passage, got {len(passages)}")
    text, title = (string_field(location, passages[0], key, empty=True) for key in ("text", "title"))
    return CorpusDocument(id=string_field(location, row, "_id"), text=text, title=title)


def _answerable_field(location: str, row: Row) -> bool:
    answerable = row.get("answerable")
    if not isinstance(answerable, bool):
        raise DatasetError(f"{location}: 'answerable' must be true or false, got {answerable!r:.60}")
    return answerable


def _parse_message(location: str, message: Row) -> Message:
    role = string_field(location, message, "role")
    if role not in ("user", "assistant"):
        raise DatasetError(f"{location}: 'role' of a message must be user or assistant, got {role!r}")
    return Message(role="user" if role == "user" else "assistant", text=string_field(location, message, "content"))
