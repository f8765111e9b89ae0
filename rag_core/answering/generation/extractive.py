"""Answers without a language model: the sentences that answer best, verbatim, each with its marker.

A sentence's score is 0.5 cosine + words + 0.5 near + 0.5 type + 0.3 subject + 0.3 passage - 0.5 label:

    cosine   with the question, scaled to [0, 1] over the candidates
    words    the share of the question's idf in the sentence and the document's title, headings and opening
    near     that share in the sentence and its neighbours, since names often occur one sentence earlier
    type     1 if the sentence contains what the question asks for, such as a number
    subject  1 if the sentence has the first word of the question that is no stop word
    passage  the score of its passage, scaled likewise
    label    1 for a line that is no sentence: it often repeats the question's names, and answers nothing

A follow-up question is read twice, as the user wrote it and with what was carried over: its scores are the means.
Sentences of the document whose title was carried over score 0.5 more.

The title and the opening count because each sentence of a document is about them: without them, questions about one of
many look-alike documents are answered by the line that contains its name.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from itertools import islice
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rag_core.answering.citing.markers import neutralize_markers, replace_stray_backticks
from rag_core.answering.generation.candidates import FULL_STOP, Candidate, find_candidates
from rag_core.answering.generation.confidence import CALIBRATED_LANGUAGE, Signals, estimate_confidence, find_lead
from rag_core.answering.generation.question_type import question_type
from rag_core.answering.generation.question_words import QuestionWords
from rag_core.conversation.repetition import repeats_sentences
from rag_core.protocols import QueryEmbedder
from rag_core.retrieval.legs import translate_errors
from rag_core.stage import attempt, record_figures
from rag_core.text.analysis import terms
from rag_core.types import Passage, Prompt, Query

Scores: TypeAlias = NDArray[np.float64]
"""One value per candidate."""

MAX_ENCODED_SENTENCES = 16
"""The number of sentences that are encoded: those with most of the question's words. With 40, recall@1 and @3 are .801
and .948 instead of .802 and .946 (XQuAD), .484 and .649 instead of .489 and .646 (COVID-QA)."""

SCORE_MARGIN = 0.9
"""The answer leaves out sentences whose scores are lower than the best one by more than this."""

REPEATING_MARGIN = 0.7
"""The margin of a sentence that adds no word of the question to the sentences before it."""

LOOKALIKE_MARGIN = 0.3
"""That margin for table rows and sentences of other documents. They can be like the best one, about something else."""

OPEN_SHARE = 0.3
"""The share of the question's idf that a sentence of another document must have, or add, to be quoted, too."""

CARRIED_BONUS = 0.5
"""The score for being in the document whose title was carried over from the conversation. Otherwise a line of another
document that contains that title would win."""

_AND = re.compile(r"\b(?:and|or|than|und|oder|als|et|ou|y|o)\b|[和与與或]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedCandidates:
    """Candidates, best first, their scores, and what is known about whether they answer the question.

    `chosen` are the sentences of an answer, best first, without those that the prompt excludes.
    """

    candidates: tuple[Candidate, ...]
    scores: tuple[float, ...]
    chosen: tuple[Candidate, ...]
    signals: Signals

    @property
    def confidence(self) -> float:
        """The calibrated probability that they answer it."""
        return estimate_confidence(self.signals)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceExtractor:
    """A Generator that answers with at most `sentences` sentences of the best `passages` passages.

    If the confidence is below `confident`, it writes `notice` and quotes the sentences instead; below `threshold` it
    abstains. `idf` returns the inverse document frequencies of a question's terms in the collection that it searches.
    `knows_cosines`: the confidence was calibrated with this encoder. Otherwise it depends on words alone.
    """

    encoder: QueryEmbedder
    idf: Callable[[Query], Awaitable[Mapping[str, float]]]
    sentences: int
    passages: int
    threshold: float
    confident: float
    notice: str
    knows_cosines: bool

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """Yields a sentence at a time.

        Records the figures `confidence`, and `quotes` if it quotes passages instead of answering, in the enclosing
        stage.
        """
        ranked = await self.rank(prompt)
        for piece in self.write(ranked):
            yield piece

    def write(self, ranked: RankedCandidates) -> Iterator[str]:
        """Yields the pieces of an answer, or of a notice with quotes; none for an abstention."""
        selected = self.select(ranked)
        record_figures(confidence=ranked.confidence)
        if ranked.confidence >= self.confident:
            yield from answer_pieces(selected)
        elif selected:
            record_figures(quotes=len(selected))
            yield from quote_pieces(selected, self.notice)

    def select(self, ranked: RankedCandidates) -> list[Candidate]:
        """The sentences of the answer, in reading order; none if the confidence is below the threshold."""
        return [] if ranked.confidence < self.threshold else reading_order(ranked.chosen)

    async def rank(self, prompt: Prompt) -> RankedCandidates:
        """Ranks the sentences; by their words alone if the encoder fails."""
        idf = await self.idf(prompt.query)
        own, carried = split_carried(prompt)
        question, asked = QuestionWords(prompt.query.text, idf), QuestionWords(own, idf)
        named = _select_named(question, prompt.passages)
        passages = nlargest(self.passages, named, key=lambda passage: passage.hit.score)
        readings = [question] if own == question.text else [question, asked]
        candidates = nlargest(MAX_ENCODED_SENTENCES, find_candidates(passages), key=partial(_word_score, readings))
        cosines: list[list[float]] = []
        if candidates:
            texts = [reading.text for reading in readings]
            embedding = self.encoder.embed([*texts, *(candidate.text for candidate in candidates)])
            vectors = await attempt("encode", translate_errors(embedding), otherwise=None)
            if vectors is not None:
                cosines = (vectors[: len(texts)] @ vectors[len(texts) :].T).tolist()
        scores = _score_sentences(readings, candidates, cosines)
        scores += CARRIED_BONUS * np.array([_has_carried_title(candidate, carried) for candidate in candidates])
        order = np.argsort(-scores, kind="stable")
        shares = [(passage.hit.chunk.document_id, _passage_share(question, passage)) for passage in passages]
        ordered, ordered_scores = [candidates[index] for index in order], scores[order].tolist()
        repeated = {candidate.text for candidate in candidates if repeats_sentences(candidate.text, prompt.excluded)}
        chosen = _choose_sentences(question, ordered, ordered_scores, self.sentences + len(repeated))
        chosen = tuple(candidate for candidate in chosen if candidate.text not in repeated)[: self.sentences]
        signals = Signals(
            share=max((share for _, share in shares), default=0.0),
            lead=find_lead(shares),
            cosine=max(cosines[0]) if cosines and self.knows_cosines else None,
            language=passages[0].language if passages else CALIBRATED_LANGUAGE,
            has_type=_has_type(question, chosen) and _has_own_words(asked, chosen),
        )
        return RankedCandidates(
            candidates=tuple(ordered),
            scores=tuple(ordered_scores),
            chosen=chosen,
            signals=signals,
        )


def answer_pieces(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yields each sentence with its marker, and neutralizes markers and stray backticks of the document.

    A row of a table or an item of a list that does not end with a full stop becomes a paragraph.
    """
    space = ""
    for candidate in candidates:
        yield f"{space}{_quotable(candidate)} [{candidate.passage.n}]"
        space = " " if FULL_STOP.search(candidate.text) else "\n\n"


def quote_pieces(candidates: Sequence[Candidate], notice: str) -> Iterator[str]:
    """Yields the notice, and each sentence in quotation marks with its marker, as a paragraph."""
    yield notice
    for candidate in candidates:
        yield f"\n\n“{_quotable(candidate)}” [{candidate.passage.n}]"


def _quotable(candidate: Candidate) -> str:
    return neutralize_markers(replace_stray_backticks(candidate.text))


def reading_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Passages in the order of their best sentences; the sentences of one passage in text order."""
    passages = list(dict.fromkeys(candidate.passage.n for candidate in candidates))
    return sorted(candidates, key=lambda candidate: (passages.index(candidate.passage.n), candidate.start))


def _choose_sentences(
    question: QuestionWords, candidates: Sequence[Candidate], scores: Sequence[float], limit: int
) -> tuple[Candidate, ...]:
    """The best sentence, further ones that add to it, and one for the part of the question that they leave open."""
    if not candidates:
        return ()
    chosen = [candidates[0]]
    for candidate, score in zip(candidates[1:limit], scores[1:], strict=False):
        fits = _adds_something(question, candidate) and _belongs(question, candidate, candidates[0])
        is_lesser = _is_lesser_row(question, candidate, candidates[0])
        if fits and not is_lesser and score >= scores[0] - _margin(question, candidate, chosen):
            chosen.append(candidate)
    has_parts = limit > 1 and _AND.search(question.text)
    others = _find_open_part(question, chosen, candidates) if has_parts else []
    return (*chosen[: limit - len(others)], *others)


def _margin(question: QuestionWords, candidate: Candidate, chosen: Sequence[Candidate]) -> float:
    """How much lower than the best score a further sentence's score can be."""
    mentioned = frozenset[str]().union(*(earlier.terms for earlier in chosen))
    if candidate.terms & question.content(candidate.passage.language) - mentioned:
        return SCORE_MARGIN
    can_be_lookalike = candidate.named_row or not _share_document(candidate, chosen[0])
    return LOOKALIKE_MARGIN if can_be_lookalike else REPEATING_MARGIN


def _adds_something(question: QuestionWords, candidate: Candidate) -> bool:
    """True if the sentence is about the question, and does not only repeat it."""
    language = candidate.passage.language
    repeats = candidate.terms <= question.terms(language)
    return not candidate.is_label and not repeats and bool(candidate.terms & question.content(language))


def _belongs(question: QuestionWords, candidate: Candidate, best: Candidate) -> bool:
    """True if the sentence is of the best one's document, or has much of what the question is about."""
    if _share_document(candidate, best):
        return True
    language = candidate.passage.language
    content = question.content(language)
    weight = question.weight(content & (candidate.known_terms | candidate.near_terms), language)
    return weight > OPEN_SHARE * question.weight(content, language)


def _share_document(candidate: Candidate, other: Candidate) -> bool:
    return candidate.passage.hit.chunk.document_id == other.passage.hit.chunk.document_id


def _is_lesser_row(question: QuestionWords, candidate: Candidate, best: Candidate) -> bool:
    """True if the best one is the row that the question names: its cells have more of the question's words.

    The names of the columns are in every row, so they say nothing about which row is asked for. A code of the question,
    such as that of an alarm, names a row by itself.
    """
    cells, best_cells = candidate.cell_terms, best.cell_terms
    words, codes = question.terms(best.passage.language), question.codes()
    is_other = bool(codes & best_cells) and not codes & cells
    return bool(cells) and (is_other or words & cells < words & best_cells)


def _find_open_part(
    question: QuestionWords, chosen: Sequence[Candidate], candidates: Sequence[Candidate]
) -> list[Candidate]:
    """The best sentence of another document for what the documents of the chosen ones do not mention, if it is much.

    A question that names two things, such as two contracts, needs both of their documents.
    """
    documents = {candidate.passage.hit.chunk.document_id for candidate in chosen}
    language = chosen[0].passage.language
    mentioned = frozenset[str]().union(*(_passage_terms(candidate.passage) for candidate in chosen))
    missing = question.terms(language) - mentioned
    needed = OPEN_SHARE * question.weight(question.terms(language), language)
    others = (other for other in candidates if other.passage.hit.chunk.document_id not in documents)
    fitting = (
        other
        for other in others
        if question.weight(missing & _passage_terms(other.passage), language) > needed
        and _adds_something(question, other)
    )
    return list(islice(fitting, 1))


def _select_named(question: QuestionWords, passages: Sequence[Passage]) -> Sequence[Passage]:
    """The passages that have a code of the question, such as a model or an alarm; all if none has.

    What a passage says about another model answers nothing, however near it is.
    """
    codes = question.codes()
    named = [passage for passage in passages if codes & _passage_terms(passage)] if codes else []
    return named or passages


def _passage_terms(passage: Passage) -> frozenset[str]:
    return frozenset(terms(passage.hit.chunk.embedded_text, passage.language))


def _passage_share(question: QuestionWords, passage: Passage) -> float:
    """The share of the question's idf in the passage's best chunk."""
    return question.share(_passage_terms(passage), passage.language)


def _word_score(readings: Sequence[QuestionWords], candidate: Candidate) -> float:
    """The terms `words` and `near` of a sentence's score, as the mean over the readings."""
    language = candidate.passage.language
    words = sum(reading.share(candidate.known_terms, language) for reading in readings)
    near = sum(reading.share(candidate.near_terms, language) for reading in readings)
    return (words + 0.5 * near) / len(readings)


def _score_sentences(
    readings: Sequence[QuestionWords], candidates: Sequence[Candidate], cosines: Sequence[Sequence[float]]
) -> Scores:
    """The scores for the readings of one question; `cosines` has a row for each, or none without an encoder."""
    question = readings[0]
    kind = question_type(question.text)
    words = np.array([_word_score(readings, candidate) for candidate in candidates])
    subject = np.array([question.subject(candidate.passage.language) in candidate.terms for candidate in candidates])
    label = np.array([candidate.is_label for candidate in candidates])
    fits = np.array([bool(kind and kind.answer_pattern.search(_readable(candidate))) for candidate in candidates])
    passage = _scale([candidate.passage.hit.score for candidate in candidates])
    cosine = _scale(np.mean(cosines, axis=0).tolist()) if cosines else np.zeros(len(candidates))
    scores: Scores = 0.5 * cosine + words + 0.5 * fits + 0.3 * subject + 0.3 * passage - 0.5 * label
    return scores


def _has_type(question: QuestionWords, chosen: Sequence[Candidate]) -> bool:
    """False if the question has a certain type, and no sentence contains such an answer."""
    kind = question_type(question.text)
    if kind is None or not kind.is_certain:
        return True
    return any(kind.answer_pattern.search(_readable(candidate)) for candidate in chosen)


def split_carried(prompt: Prompt) -> tuple[str, str]:
    """The user's words, and what was added to them from the conversation; a rewritten question counts as their own."""
    text, question = prompt.query.text, prompt.question
    return (question, text.removeprefix(question)) if question and text.startswith(question) else (text, "")


def _has_carried_title(candidate: Candidate, carried: str) -> bool:
    title = candidate.passage.hit.origin.title
    return bool(title) and title in carried


def _weighted_content(asked: QuestionWords, candidate: Candidate) -> Set[str]:
    language = candidate.passage.language
    return {term for term in asked.content(language) if asked.weight({term}, language)}


def _has_own_words(asked: QuestionWords, chosen: Sequence[Candidate]) -> bool:
    """False if no sentence, with its neighbours, has one of the weighted words that the user asks about."""
    return not chosen or any(
        not (content := _weighted_content(asked, candidate)) or content & (candidate.known_terms | candidate.near_terms)
        for candidate in chosen
    )


def _readable(candidate: Candidate) -> str:
    """The text, or the row with the names of its columns."""
    return candidate.named_row or candidate.text


def _scale(values: Sequence[float]) -> Scores:
    """Scales the values to [0, 1]; to zeros if all are equal."""
    array = np.array(values, np.float64)
    if not np.any(array != array[:1]):
        return np.zeros_like(array)
    scaled: Scores = (array - array.min()) / np.ptp(array)
    return scaled
