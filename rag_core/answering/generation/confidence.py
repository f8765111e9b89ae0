"""The calibrated probability that an answer is right, from what is known when it is written.

Two signals carry it, on every set that was tried. One is how near the nearest sentence is to the question. The other is
the lead: how much more of the question's idf the best passage has than any passage of another document. The lead
replaces a gap between cosines, which look-alike documents never have, and a share of the question's words, which no
passage has of a long question.

`python -m benchmarks.calibration DATA` fits the numbers again. They come from XQuAD (1,190 questions), COVID-QA (350),
ClapNQ (147) and 200 generated look-alikes, and from questions that their collections do not answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from uuid import UUID

from rag_core.types import Hit

CALIBRATED_ENCODER = "all-MiniLM-L6-v2"
"""The model whose cosines the calibrations expect."""

CALIBRATED_LANGUAGE = "en"
"""The language of the passages that the calibrations expect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What is known about an answer. All values are from 0 to 1, except that a cosine can be negative.

    `share` is the highest share of the question's idf in a passage, and `lead` what it is above that of any passage of
    another document. `cosine` is the highest of a sentence with the question; None if there is no calibrated encoder.
    `language` is that of the best passage. `has_type` is false if the answer lacks what the question asks for, such as
    a price.
    """

    share: float = 0.0
    lead: float = 0.0
    cosine: float | None = None
    language: str = CALIBRATED_LANGUAGE
    has_type: bool = True


@dataclass(frozen=True, slots=True)
class Calibration:
    """A logistic regression of "the answer is right" on how near it is, and on its lead."""

    intercept: float
    nearness: float
    lead: float

    def probability(self, nearness: float, lead: float) -> float:
        return 1 / (1 + exp(-(self.intercept + self.nearness * nearness + self.lead * lead)))


SENTENCES = Calibration(-3.58, 6.59, 2.28)
"""Nearness is the cosine of a sentence."""

WORDS = Calibration(-2.42, 4.07, 1.42)
"""Nearness is the share of the question's words: for other encoders, and for an encoder that fails."""

PASSAGES = Calibration(-3.27, 6.86, 3.16)
"""Nearness is the cosine of a chunk, and the lead that of its BM25 score. "Right" means that a passage has the answer:
it is for language models, whose own errors the judge finds."""


UNTYPED_CONFIDENCE = 0.45
"""The highest confidence in an answer that lacks what the question asks for. It is not fitted: by default, it makes
passages of the answer."""


def estimate_confidence(signals: Signals) -> float:
    """The probability by sentences, or by words without cosines; at most `UNTYPED_CONFIDENCE` without the type.

    In other languages than English it is the mean of both: an encoder that hardly knows a language finds all its texts
    near, and question words without a list of stop words count as words that no passage has.
    """
    probability = words = WORDS.probability(signals.share, signals.lead)
    if signals.cosine is not None:
        sentences = SENTENCES.probability(signals.cosine, signals.lead)
        probability = sentences if signals.language == CALIBRATED_LANGUAGE else (sentences + words) / 2
    return probability if signals.has_type else min(probability, UNTYPED_CONFIDENCE)


def estimate_retrieval_confidence(hits: Sequence[Hit]) -> float | None:
    """The probability that the passages have the answer; None if the hits have no scores of both legs."""
    signals = read_passage_signals(hits)
    return PASSAGES.probability(*signals) if signals else None


def read_passage_signals(hits: Sequence[Hit]) -> tuple[float, float] | None:
    """The highest cosine of a hit, and the relative lead of the best BM25 score; None if a leg gave no scores."""
    cosines = [hit.scores["dense"] for hit in hits if "dense" in hit.scores]
    scores = [(hit.chunk.document_id, hit.scores["bm25"]) for hit in hits if "bm25" in hit.scores]
    if not cosines or not scores:
        return None
    best = max(score for _, score in scores)
    return max(cosines), find_lead(scores) / best if best > 0 else 0.0


def find_lead(shares: Sequence[tuple[UUID, float]]) -> float:
    """The highest share less the highest of another document's passages; `shares` are pairs of document and share."""
    if not shares:
        return 0.0
    best_document, best = max(shares, key=lambda pair: pair[1])
    return best - max((share for document, share in shares if document != best_document), default=0.0)
