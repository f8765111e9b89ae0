"""Answers without a language model: the sentences of the passages that answer best, verbatim, each with its marker.

A sentence's score is .5 cosine + 1 words + .5 near + .3 type + .3 passage: `words` is the share of the question's idf
that it holds, `near` that of it and its neighbours together, since names often stand one sentence earlier; `type` is 1
if it has what the question asks for. Cosine, and the passage's own score, are scaled to [0, 1] over the candidates. The
best of 972 weightings was within .02 of this.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rag_core.answering.citing.markers import closed, neutralised
from rag_core.answering.generation.abstention import confidence
from rag_core.answering.generation.candidates import Candidate, candidates
from rag_core.answering.generation.question_type import question_type
from rag_core.protocols import QueryEmbedder
from rag_core.retrieval.legs import named
from rag_core.stage import attempt, record_figures
from rag_core.text.analysis import terms
from rag_core.types import Passage, Prompt, Query

Scores: TypeAlias = NDArray[np.float64]
"""One a candidate."""

ENCODED = 16
"""Sentences at the most that are encoded, those with most of the question's words. With 40 recall@1 and @3 are .801 and
.948 instead of .802 and .946 (XQuAD), .484 and .649 instead of .489 and .646 (COVID-QA)."""

MARGIN = 0.8
"""What scores so much less than the best sentence is no part of the answer. Answers to a quarter of XQuAD's questions
have 2.2 sentences then, not 3, and hold a gold one as often (.950, .953); token F1 on ClapNQ is .562 instead of .564.
One sentence for questions that ask for a name, a time or a number scores .44 there, and three .58."""

_STOPPED = re.compile(r"[.!?…。！？]\W*$")  # noqa: RUF001


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Candidates, best first, their scores, and how likely it is that they answer."""

    candidates: tuple[Candidate, ...]
    scores: tuple[float, ...]
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Extractive:
    """A Generator. It takes so many `sentences` out of the best `passages`, and none below the confidence `threshold`.

    `idf` tells how rare each term of a question is in the collection that it is asked of.
    """

    encoder: QueryEmbedder
    idf: Callable[[Query], Awaitable[Mapping[str, float]]]
    sentences: int
    passages: int
    threshold: float

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """A sentence at a time. The stage around gets the figure `confidence`."""
        ranked = await self.ranked(prompt)
        record_figures(confidence=ranked.confidence)
        for piece in pieces(self.chosen(ranked)):
            yield piece

    def chosen(self, ranked: Ranked) -> list[Candidate]:
        """In reading order; none below the threshold."""
        if not ranked.candidates or ranked.confidence < self.threshold:
            return []
        least = ranked.scores[0] - MARGIN
        scored = zip(ranked.candidates[: self.sentences], ranked.scores, strict=False)
        return in_reading_order([candidate for candidate, score in scored if score >= least])

    async def ranked(self, prompt: Prompt) -> Ranked:
        """By their words alone, if they cannot be encoded."""
        question = _Question(prompt.query.text, await self.idf(prompt.query))
        passages = nlargest(self.passages, prompt.passages, key=lambda passage: passage.hit.score)
        found = nlargest(ENCODED, candidates(passages), key=question.worded)
        cosines = await self._cosines(question.text, found)
        scores = _scores(question, found, cosines)
        order = np.argsort(-scores, kind="stable")
        coverage = max(map(question.covered, passages), default=0.0)
        return Ranked(
            candidates=tuple(found[place] for place in order),
            scores=tuple(scores[order].tolist()),
            confidence=confidence(prompt.hits, cosines, coverage),
        )

    async def _cosines(self, question: str, found: Sequence[Candidate]) -> list[float]:
        """None at all without an encoder that answers."""
        if not found:
            return []
        texts = [question, *(candidate.text for candidate in found)]
        vectors = await attempt("encode", named(self.encoder.embed(texts)), otherwise=None)
        return [] if vectors is None else (vectors[1:] @ vectors[0]).tolist()


def pieces(chosen: Sequence[Candidate]) -> Iterator[str]:
    """Of the answer: a sentence and its marker each. What looks like a marker in a sentence is none, and its code ends
    within it. A table's row or a list's item that no stop ends is a paragraph of its own."""
    space = ""
    for candidate in chosen:
        yield f"{space}{neutralised(closed(candidate.text))} [{candidate.passage.n}]"
        space = " " if _STOPPED.search(candidate.text) else "\n\n"


def in_reading_order(chosen: Sequence[Candidate]) -> list[Candidate]:
    """Passages in the order of their best sentences, each in text order."""
    passages = list(dict.fromkeys(candidate.passage.n for candidate in chosen))
    return sorted(chosen, key=lambda candidate: (passages.index(candidate.passage.n), candidate.start))


@dataclass(frozen=True, slots=True)
class _Question:
    """`idf` is by term."""

    text: str
    idf: Mapping[str, float]

    def held(self, candidate: Candidate) -> float:
        return self.share(candidate.terms, candidate.passage.language)

    def near(self, candidate: Candidate) -> float:
        return self.share(candidate.near, candidate.passage.language)

    def worded(self, candidate: Candidate) -> float:
        return self.held(candidate) + 0.5 * self.near(candidate)

    def covered(self, passage: Passage) -> float:
        spoken = passage.language
        return self.share(frozenset(terms(passage.hit.chunk.embedded_text, spoken)), spoken)

    def share(self, found: frozenset[str], spoken: str) -> float:
        """Of the question's idf, as that language reads it, that these terms hold."""
        asked = set(terms(self.text, spoken))
        total = sum(self.idf.get(term, 0.0) for term in asked)
        return sum(self.idf.get(term, 0.0) for term in asked & found) / total if total else 0.0


def _scores(question: _Question, found: Sequence[Candidate], cosines: Sequence[float]) -> Scores:
    asked = question_type(question.text)
    words = np.array([question.worded(candidate) for candidate in found])
    fits = np.array([bool(asked and asked.answers.search(candidate.text)) for candidate in found])
    passage = _scaled([candidate.passage.hit.score for candidate in found])
    cosine = _scaled(cosines) if cosines else np.zeros(len(found))
    scores: Scores = 0.5 * cosine + words + 0.3 * fits + 0.3 * passage
    return scores


def _scaled(values: Sequence[float]) -> Scores:
    """To [0, 1]; zeros where all are equal."""
    given = np.array(values, np.float64)
    if not np.any(given != given[:1]):
        return np.zeros_like(given)
    scaled: Scores = (given - given.min()) / np.ptp(given)
    return scaled
