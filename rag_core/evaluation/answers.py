"""How well answers agree with references, and refusals with what can be answered."""

import re
import string
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import sqrt

import numpy as np

from rag_core.evaluation.significance import Estimate

Z = 1.959963984540054
"""Standard deviations on both sides of a mean that hold 95 % of a normal distribution."""

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def sentence_recall(gold: Sequence[bool], k: int) -> float:
    """1 if one of the first k sentences is a gold one, as they are marked, best first; else 0.

    Accuracy@k of answer sentence selection: Yang, Yih and Meek, WikiQA, EMNLP 2015, ask for one that answers.
    """
    return float(any(gold[:k]))


def token_f1(answer: str, references: Sequence[str]) -> float:
    """Of the words of the answer and of the reference that it agrees with best.

    Rajpurkar et al., SQuAD: 100,000+ questions for machine comprehension of text, EMNLP 2016: without case,
    punctuation and articles, a word as often as it stands in both.
    """
    return max((_f1(_words(answer), _words(reference)) for reference in references), default=0.0)


@dataclass(frozen=True, slots=True)
class Agreement:
    precision: float
    recall: float


def sentence_agreement(chosen: Set[str], gold: Set[str]) -> Agreement:
    """Shares of the chosen sentences that are gold, and of the gold ones that are chosen; 0 of none.

    Thorne et al., FEVER: a large-scale dataset for fact extraction and verification, NAACL 2018, of evidence.
    """
    both = len(chosen & gold)
    return Agreement(both / max(1, len(chosen)), both / max(1, len(gold)))


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """How likely a positive one scores above a negative one, a tie being half of it; at least one of each.

    Mann and Whitney 1947; Hanley and McNeil, The meaning and use of the area under a ROC curve, Radiology 1982.
    """
    ordered = np.sort(np.asarray(negative, np.float64))
    below = np.searchsorted(ordered, positive, "left") + np.searchsorted(ordered, positive, "right")
    return float(below.mean() / (2 * len(ordered)))


def auroc_estimate(
    positive: Sequence[float], negative: Sequence[float], seed: int = 0, resamples: int = 1_000
) -> Estimate:
    """With the percentiles of a bootstrap that draws from each side by itself (Efron 1979)."""
    generator = np.random.default_rng(seed)
    drawn = [auroc(_drawn(positive, generator), _drawn(negative, generator)) for _ in range(resamples)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Estimate(auroc(positive, negative), float(low), float(high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Questions by whether they can be answered, and whether they were."""

    answered: int
    refused: int
    unanswerable_answered: int
    unanswerable_refused: int


def confusion(answerable: Sequence[float], unanswerable: Sequence[float], threshold: float) -> Confusion:
    """Of confidences: from the threshold on a question is answered."""
    answered, wrongly = (sum(each >= threshold for each in side) for side in (answerable, unanswerable))
    return Confusion(
        answered=answered,
        refused=len(answerable) - answered,
        unanswerable_answered=wrongly,
        unanswerable_refused=len(unanswerable) - wrongly,
    )


def share(count: int, of: int) -> Estimate:
    """With its 95 % interval; `of` is at least 1. Wilson, Probable inference, the law of succession, JASA 1927."""
    mean, spread = count / of, Z * Z / of
    centre, half = mean + spread / 2, Z * sqrt(mean * (1 - mean) / of + spread / (4 * of))
    return Estimate(mean, max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread)))


def _words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def _f1(answer: Sequence[str], reference: Sequence[str]) -> float:
    """1 if neither has a word, as SQuAD 2.0's script has it."""
    if not answer or not reference:
        return float(answer == reference)
    both = (Counter(answer) & Counter(reference)).total()
    return 2 * both / (len(answer) + len(reference))


def _drawn(values: Sequence[float], generator: np.random.Generator) -> list[float]:
    drawn: list[float] = generator.choice(np.asarray(values, np.float64), len(values)).tolist()
    return drawn
