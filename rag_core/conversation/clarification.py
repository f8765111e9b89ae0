"""Questions that are asked back, because a question fits several documents equally well."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from uuid import UUID

from rag_core.retrieval.query.continuation import CLARIFICATION
from rag_core.text.analysis import terms
from rag_core.text.sentences import sentence_spans
from rag_core.text.titles import file_name, split_name
from rag_core.types import Clarification, Hit, Message, Query

MAX_READ_DOCUMENTS = 10
"""The number of the best documents that are compared."""

SCORE_GAP = 0.5
"""How much lower than the best hit another document's can be, as a share of the range of all scores."""

COVERED_SHARE = 0.5
"""The share of the question's terms that the documents must contain."""

PARALLEL_SHARE = 0.5
"""The share of all their terms that two sentences must have in common, apart from those of the titles and numbers."""

_SEVERAL = re.compile(
    r"\b(?:all|each|every|both|any|which|list|compare|many|most|least|different|between|or)\b"
    r"|\b(?:alle[nrs]?|jede[nrs]?|beide[nr]?|welche[nrs]?|vergleiche?|viele|oder|zwischen)\b"
    r"|\b(?:tou(?:s|tes?)|chaque|quels|quelles|comparer?|ou|entre)\b"
    r"|\b(?:tod[oa]s|cada|cuáles|compara|entre|o)\b|所有|每|哪些|比较|比較",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadClarifier:
    """A clarifier that asks `question` with at most `options` titles.

    It asks if documents with similar titles contain the same terms of the question in similar sentences, are ranked
    about equally, and neither the question nor the history has a word of one title that the others lack.
    """

    question: str
    options: int = 5

    def clarify(self, query: Query, history: Sequence[Message], hits: Sequence[Hit]) -> Clarification | None:
        """`hits` are best first. Questions about several documents at once are not ambiguous."""
        if not hits or _SEVERAL.search(query.text):
            return None
        alike = _select_alike(query.text, _read_documents(hits))
        known = _known_terms(query, history, {document.language for document in alike})
        distinctive = _distinctive_terms(alike)
        is_chosen = any(words & known for words in distinctive)
        if is_chosen or not all(distinctive) or not _has_rivals(alike, hits):
            return None
        return Clarification(
            question=self.question, options=tuple(document.title for document in alike[: self.options])
        )


def was_asked_back(history: Sequence[Message], question: str = "") -> bool:
    """True if the last answer asks back. Messages of a client have no intent; their text begins with the question."""
    last = next((message for message in reversed(history) if message.role == "assistant"), None)
    if last is None:
        return False
    return last.intent == CLARIFICATION or (bool(question) and last.text.startswith(question))


def mark_clarification(history: Sequence[Message], question: str) -> tuple[Message, ...]:
    """The history with the intent of a last answer that asks the question back."""
    if not history or history[-1].role != "assistant" or not was_asked_back(history, question):
        return tuple(history)
    return (*history[:-1], replace(history[-1], intent=CLARIFICATION))


def format_clarification(clarification: Clarification) -> str:
    """The question, and its options as a numbered list."""
    options = "\n".join(f"{number}. {option}" for number, option in enumerate(clarification.options, 1))
    return f"{clarification.question}\n\n{options}" if options else clarification.question


@dataclass(frozen=True, slots=True)
class _Document:
    """The hits of one document, best first."""

    hits: Sequence[Hit]

    @property
    def title(self) -> str:
        return self.hits[0].origin.title

    @property
    def language(self) -> str:
        return self.hits[0].origin.language or "en"

    @property
    def title_terms(self) -> frozenset[str]:
        return frozenset(terms(self.title, self.language))

    @property
    def terms(self) -> frozenset[str]:
        texts = "\n".join(hit.chunk.embedded_text for hit in self.hits)
        return self.title_terms.union(terms(texts, self.language))

    @property
    def has_file_title(self) -> bool:
        """True if the title is only the name of the file."""
        return self.title.casefold() == split_name(file_name(self.hits[0].origin.uri)).casefold()

    def closest_sentence(self, question_terms: frozenset[str]) -> frozenset[str]:
        """The terms of the sentence with most of the question's terms, without numbers."""
        texts = (hit.chunk.text[start:end] for hit in self.hits for start, end in sentence_spans(hit.chunk.text))
        sentences = (_drop_numbers(terms(text, self.language)) for text in texts)
        return max(sentences, key=lambda sentence: len(sentence & question_terms), default=frozenset())


def _read_documents(hits: Sequence[Hit]) -> list[_Document]:
    """The documents of the hits, in the order of their best hits."""
    by_document: dict[UUID, list[Hit]] = {}
    for hit in hits:
        by_document.setdefault(hit.chunk.document_id, []).append(hit)
    return [_Document(document_hits) for document_hits in islice(by_document.values(), MAX_READ_DOCUMENTS)]


def _select_alike(question: str, documents: Sequence[_Document]) -> list[_Document]:
    """The documents that have titles like the best one's, and as much of the question."""
    best = documents[0]
    question_terms = frozenset(terms(question, best.language))
    covered = [question_terms & document.terms for document in documents]
    if len(covered[0]) < max(*map(len, covered), COVERED_SHARE * len(question_terms), 1):
        return []
    sentence = best.closest_sentence(question_terms)
    rivals = [document for document, words in zip(documents, covered, strict=True) if words == covered[0]]
    return [
        document
        for document in rivals
        if document is best
        or (
            _has_similar_title(document, best)
            and _is_parallel(document.closest_sentence(question_terms), sentence, document, best)
        )
    ]


def _has_similar_title(document: _Document, best: _Document) -> bool:
    """True if the titles have at least half of their words in common, by the shorter one, and are not equal."""
    one, other = _drop_numbers(document.title_terms), _drop_numbers(best.title_terms)
    is_equal = document.title_terms == best.title_terms
    return not is_equal and 2 * len(one & other) >= min(len(one), len(other)) > 0


def _is_parallel(one: frozenset[str], other: frozenset[str], *documents: _Document) -> bool:
    """True if two sentences are alike, apart from the words of the documents' titles."""
    titles = frozenset[str]().union(*(document.title_terms for document in documents))
    one, other = one - titles, other - titles
    return len(one & other) >= PARALLEL_SHARE * len(one | other) > 0


def _has_rivals(documents: Sequence[_Document], hits: Sequence[Hit]) -> bool:
    """True if at least two of the documents are ranked about equally."""
    best, lowest = hits[0].score, min(hit.score for hit in hits)
    scores = [document.hits[0].score for document in documents]
    return len([score for score in scores if best - score <= SCORE_GAP * (best - lowest)]) > 1


def _distinctive_terms(documents: Sequence[_Document]) -> list[frozenset[str]]:
    """The terms of each title that not all the other titles have.

    The numbers of file names count only if the names have two other words in common: `page 1` says nothing to the user.
    """
    titles = [document.title_terms for document in documents]
    common = frozenset[str].intersection(*titles) if titles else frozenset[str]()
    has_named_files = any(document.has_file_title for document in documents) and len(_drop_numbers(common)) < 2
    return [_drop_numbers(title - common) if has_named_files else title - common for title in titles]


def _drop_numbers(words: Iterable[str]) -> frozenset[str]:
    return frozenset(filter(str.isalpha, words))


def _known_terms(query: Query, history: Sequence[Message], languages: Collection[str]) -> frozenset[str]:
    """The terms of the question and of the history, with the titles that it cites, in each of the languages."""
    texts = [query.text]
    for message in history:
        texts += [message.text, *message.titles]
    return frozenset(term for text in texts for language in languages for term in terms(text, language))
