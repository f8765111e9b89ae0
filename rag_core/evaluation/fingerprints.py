"""Hashes of a dataset's contents: runs with different ones measure different things."""

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from rag_core.evaluation.dataset import Dataset, read_corpus
from rag_core.evaluation.question import Question


def hash_dataset(dataset: Dataset) -> str:
    """The SHA-256 of the corpus, its padding, the questions and their grades, in hexadecimal digits.

    The order of documents and questions does not matter.
    """
    corpus = hash_corpus(dataset.corpus)
    questions = {question.id: _describe_question(question) for question in (*dataset.questions, *dataset.asked)}
    padding = map(hash_corpus, dataset.padding)
    return _hash_values([corpus, *padding, hash_grades(dataset), *(questions[id] for id in sorted(questions))])


def hash_grades(dataset: Dataset) -> str:
    """The SHA-256 of the grades of the dataset's questions."""
    return _hash_values(sorted([question.id, sorted(question.grades.items())] for question in dataset.questions))


def hash_corpus(corpus: Path) -> str:
    if corpus.is_dir():
        files = sorted(path for path in corpus.rglob("*") if path.is_file())
        return _hash_values([str(path.relative_to(corpus)), sha256(path.read_bytes()).hexdigest()] for path in files)
    return _hash_values(sorted([document.id, document.title, document.text] for document in read_corpus(corpus)))


def _describe_question(question: Question) -> list[Any]:
    spans = sorted([span.document, span.start, span.end] for span in question.spans)
    history = [[message.role, message.text] for message in question.history]
    rewrite = [question.rewrite] if question.rewrite else []
    return [question.id, question.text, spans, question.references, question.answerable, history, *rewrite]


def _hash_values(values: Iterable[Any]) -> str:
    digest = sha256()
    for value in values:
        digest.update(json.dumps(value, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
