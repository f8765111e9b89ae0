"""A dataset of the questions that people asked a gateway, and of their feedback on the answers.

    DIR/corpus.jsonl         the documents of the collection
    DIR/queries_train.jsonl  {"_id", "text", "origin"} per question; the id is that of an answer
    DIR/qrels/train.tsv      grade 1 for each document that a liked answer cites
    DIR/answers.jsonl        {"_id", "question", "answers", "answerable", "origin"} per corrected answer

There is no test split: whoever tunes on what people liked must not report on it.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from rag_core.errors import UsageError
from rag_core.evaluation.dataset import QRELS_HEADER
from rag_core.storage.catalog import Catalog
from rag_core.storage.replies import RatedReply

MIN_LIKED_STARS = 4
PAGE_DOCUMENTS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """A question that was asked `times` times, and the answer to it that says most about it."""

    reply: RatedReply
    times: int

    @property
    def origin(self) -> Mapping[str, Any]:
        reply = self.reply
        return {
            "from": "replies",
            "answer_id": reply.id,
            "created_at": reply.created_at.isoformat(),
            "pipeline_version": reply.pipeline_version,
            "rating": reply.rating,
            "stars": reply.stars,
            "times": self.times,
        }


def is_liked(reply: RatedReply) -> bool:
    """True for thumbs up or, if there are no thumbs, for four or five stars."""
    return reply.rating == 1 or (reply.rating is None and (reply.stars or 0) >= MIN_LIKED_STARS)


def select_questions(replies: Iterable[RatedReply]) -> list[AskedQuestion]:
    """One value per question, in the order of their first occurrence. Upper case and spaces make no difference.

    The answer that counts is the latest corrected one, else the latest liked one, else the latest.
    """
    groups = defaultdict[str, list[RatedReply]](list)
    for reply in replies:
        groups[" ".join(reply.standalone.casefold().split())].append(reply)
    return [
        AskedQuestion(
            reply=max(group, key=lambda reply: (bool(reply.corrected_answer), is_liked(reply), reply.created_at)),
            times=len(group),
        )
        for group in groups.values()
    ]


def write_asked_questions(
    folder: Path, catalog: Catalog, collection: str, replies: Iterable[RatedReply]
) -> Mapping[str, int]:
    """Writes the dataset and returns the numbers of documents, questions, graded questions and reference answers.

    Raises UsageError if the folder is not empty, and NotFoundError if there is no such collection.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"--out must be a new or an empty folder, got {folder}")
    documents = list(_list_documents(catalog, catalog.collection(collection).name))
    questions = select_questions(reply for reply in replies if reply.collection == collection)
    corrected = [question for question in questions if question.reply.corrected_answer]
    grades = grade_documents(questions, _cited_documents(catalog, collection, questions))
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    corpus = ({"_id": str(row["id"]), "title": row["title"], "text": catalog.text(row["id"])} for row in documents)
    _write_lines(folder / "corpus.jsonl", map(_to_json, corpus))
    _write_lines(folder / "queries_train.jsonl", (_to_json(_question_row(question)) for question in questions))
    _write_lines(folder / "answers.jsonl", (_to_json(_answer_row(question)) for question in corrected))
    graded = [(question, document, "1") for question, found in grades.items() for document in found]
    _write_lines(folder / "qrels" / "train.tsv", map("\t".join, [QRELS_HEADER, *graded]))
    return {
        "documents": len(documents),
        "questions": len(questions),
        "graded": len(grades),
        "references": len(corrected),
    }


def grade_documents(questions: Iterable[AskedQuestion], documents: Mapping[UUID, str]) -> dict[str, list[str]]:
    """The documents that liked answers cite, by question. `documents` has their ids by chunk."""
    liked = [question.reply for question in questions if is_liked(question.reply)]
    cited = {reply.id: [documents[chunk] for chunk in reply.cited_ids if chunk in documents] for reply in liked}
    return {id: list(dict.fromkeys(found)) for id, found in cited.items() if found}


def _list_documents(catalog: Catalog, collection: str) -> Iterator[Mapping[str, Any]]:
    page = catalog.documents(collection, status="completed", limit=PAGE_DOCUMENTS)
    while page:
        yield from page
        page = catalog.documents(collection, status="completed", after=page[-1]["uri"], limit=PAGE_DOCUMENTS)


def _cited_documents(catalog: Catalog, collection: str, questions: Sequence[AskedQuestion]) -> Mapping[UUID, str]:
    """The document of each cited chunk that still exists."""
    chunks = {chunk for question in questions for chunk in question.reply.cited_ids}
    rows = catalog.chunk_spans(collection, list(chunks))
    ids = {uri: str(catalog.document(collection, uri)["id"]) for uri in {row["uri"] for row in rows}}
    return {row["id"]: ids[row["uri"]] for row in rows}


def _question_row(question: AskedQuestion) -> Mapping[str, Any]:
    return {"_id": question.reply.id, "text": question.reply.standalone, "origin": question.origin}


def _answer_row(question: AskedQuestion) -> Mapping[str, Any]:
    reply = question.reply
    return {
        "_id": reply.id,
        "question": reply.standalone,
        "answers": [reply.corrected_answer],
        "answerable": True,
        "origin": question.origin,
    }


def _to_json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
