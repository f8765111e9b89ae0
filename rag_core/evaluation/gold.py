"""The words of an answer in the documents that are relevant for its question."""

import re
from collections.abc import Iterable, Mapping

from rag_core.evaluation.answers import contains_reference
from rag_core.evaluation.metrics import relevant_ids
from rag_core.evaluation.question import Question
from rag_core.evaluation.spans import Span


def find_answer_spans(question: Question, texts: Mapping[str, str]) -> dict[str, Span]:
    """The span of the answer by relevant document, without documents in which it is unknown.

    `texts` are the original texts, by document. The spans of the dataset count, or else the references that occur in a
    text as whole words. The shortest span is returned, because it is the least likely to be cut.
    """
    spans = question.spans or [
        Span(document=id, start=match.start(), end=match.end())
        for id in relevant_ids(question.grades)
        for reference in question.references
        if (match := re.search(rf"(?<!\w){re.escape(reference)}(?!\w)", texts.get(id, "")))
    ]
    longest_first = sorted(spans, key=lambda span: -span.length)
    return {span.document: span for span in longest_first if span.document in texts}


def has_gold_passage(question: Question, passages: Iterable[tuple[str, str]], words: Mapping[str, str]) -> bool | None:
    """True if a passage of a relevant document contains the words of its answer; None without an answer to contain.

    `passages` are pairs of a document and a text. Any passage of a document that is not in `words` is enough. No
    passage has the answer to an unanswerable question, even if documents about its subject are graded as relevant.
    """
    relevant = set(relevant_ids(question.grades))
    if not relevant or question.answerable is False:
        return None
    return any(
        document in relevant and (document not in words or contains_reference(text, [words[document]]) == 1)
        for document, text in passages
    )
