"""Questions that are asked back, because a question fits several documents equally well."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rag_core.text.analysis import terms
from rag_core.text.sentences import sentence_spans
from rag_core.text.titles import file_name, split_name
from rag_core.types import Clarification, Hit, Message, Query

CLARIFICATION = "clarification"
"""The intent of an answer that asks back."""

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
_NUMBERED = re.compile(r"^(\d+)\. (.+)$", re.MULTILINE)


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
        documents = _select_alike(query.text, hits)
        known = _known_terms(query, history, {_language(hit) for hit in documents})
        distinctive = _distinctive_terms(documents)
        is_chosen = any(words & known for words in distinctive)
        if is_chosen or not all(distinctive) or not _has_rivals(documents, hits):
            return None
        titles = tuple(hit.origin.title for hit in documents[: self.options])
        return Clarification(question=self.question, options=titles)


def was_asked_back(history: Sequence[Message], question: str = "") -> bool:
    """True if the last answer asks back. Messages of a client have no intent; their text begins with the question."""
    last = next((message for message in reversed(history) if message.role == "assistant"), None)
    if last is None:
        return False
    return last.intent == CLARIFICATION or (bool(question) and last.text.startswith(question))


def format_clarification(clarification: Clarification) -> str:
    """The question, and its options as a numbered list."""
    options = "\n".join(f"{number}. {option}" for number, option in enumerate(clarification.options, 1))
    return f"{clarification.question}\n\n{options}" if options else clarification.question


def choose_option(text: str, asked: str) -> str:
    """The option that a reply to `asked` chooses by its number; other replies are returned as they are."""
    options = {match[1]: match[2] for match in _NUMBERED.finditer(asked)}
    return options.get(text.strip(" .)"), text)


def _has_rivals(documents: Sequence[Hit], hits: Sequence[Hit]) -> bool:
    """True if at least two of the documents are ranked about equally."""
    best, lowest = hits[0].score, min(hit.score for hit in hits)
    return len([hit for hit in documents if best - hit.score <= SCORE_GAP * (best - lowest)]) > 1


def _select_alike(question: str, hits: Sequence[Hit]) -> list[Hit]:
    """The hits of the documents that have titles like the best one's, and as much of the question."""
    documents = _best_by_document(hits)[:MAX_READ_DOCUMENTS]
    best = documents[0]
    asked = frozenset(terms(question, _language(best)))
    covered = {hit.chunk.id: asked & _read_terms(hit) for hit in documents}
    most = max(map(len, covered.values()))
    if len(covered[best.chunk.id]) < max(most, COVERED_SHARE * len(asked), 1):
        return []
    return [
        hit
        for hit in documents
        if covered[hit.chunk.id] == covered[best.chunk.id]
        and _has_similar_title(hit, best)
        and _is_parallel(hit, best, asked)
    ]


def _best_by_document(hits: Sequence[Hit]) -> list[Hit]:
    return list({hit.chunk.document_id: hit for hit in reversed(hits)}.values())[::-1]


def _has_similar_title(hit: Hit, best: Hit) -> bool:
    """True if the titles have at least half of their terms in common, by the shorter one, and are not equal."""
    one, other = _title_terms(hit), _title_terms(best)
    if hit.chunk.document_id == best.chunk.document_id:
        return bool(one)
    return one != other and 2 * len(one & other) >= min(len(one), len(other)) > 0


def _is_parallel(hit: Hit, best: Hit, asked: frozenset[str]) -> bool:
    """True if the sentences that contain most of the question are alike, apart from the words of the titles."""
    titles = _title_terms(hit) | _title_terms(best)
    one, other = _closest_sentence(hit, asked) - titles, _closest_sentence(best, asked) - titles
    return len(one & other) >= PARALLEL_SHARE * len(one | other) > 0


def _closest_sentence(hit: Hit, asked: frozenset[str]) -> frozenset[str]:
    """The terms of the sentence with most of the question's terms, without numbers."""
    text, language = hit.chunk.text, _language(hit)
    spans = sentence_spans(text)
    sentences = [_drop_numbers(terms(text[start:end], language)) for start, end in spans]
    return max(sentences, key=lambda sentence: len(sentence & asked), default=frozenset())


def _drop_numbers(words: Iterable[str]) -> frozenset[str]:
    return frozenset(filter(str.isalpha, words))


def _distinctive_terms(hits: Sequence[Hit]) -> list[frozenset[str]]:
    """The terms of each title that not all the other titles have, without the numbers of file names."""
    titles = list(map(_title_terms, hits))
    common = frozenset[str].intersection(*titles) if titles else frozenset[str]()
    return [
        _drop_numbers(title - common) if _has_file_title(hit) else title - common
        for hit, title in zip(hits, titles, strict=True)
    ]


def _has_file_title(hit: Hit) -> bool:
    """True if the title is only the name of the file, whose numbers say nothing to the user."""
    return hit.origin.title.casefold() == split_name(file_name(hit.origin.uri)).casefold()


def _known_terms(query: Query, history: Sequence[Message], languages: Collection[str]) -> frozenset[str]:
    """The terms of the question and of the history, with the titles that it cites, in each of the languages."""
    texts = [query.text]
    for message in history:
        texts += [message.text, *message.titles]
    return frozenset(term for text in texts for language in languages for term in terms(text, language))


def _read_terms(hit: Hit) -> frozenset[str]:
    return frozenset(terms(f"{hit.origin.title}\n{hit.chunk.embedded_text}", _language(hit)))


def _title_terms(hit: Hit) -> frozenset[str]:
    return frozenset(terms(hit.origin.title, _language(hit)))


def _language(hit: Hit) -> str:
    return hit.origin.language or "en"
