"""The agreement of answers with references, and of refusals with questions that cannot be answered."""

import re
import string
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import sqrt

import numpy as np

from rag_core.evaluation.significance import Estimate

Z = 1.959963984540054
"""The number of standard deviations around a mean that contain 95 % of a normal distribution."""

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def sentence_recall(gold: Sequence[bool], k: int) -> float:
    """1 if one of the first k sentences is gold, else 0; `gold` holds one flag per sentence, best first.

    Accuracy@k of answer sentence selection: Yang, Yih and Meek, WikiQA, EMNLP 2015, require one sentence that answers.
    """
    return float(any(gold[:k]))


def token_f1(answer: str, references: Sequence[str]) -> float:
    """The F1 of the answer's words and those of the best reference, without case, punctuation and articles.

    Rajpurkar et al., SQuAD: 100,000+ questions for machine comprehension of text, EMNLP 2016. A word counts as often
    as both contain it. If both have no words it is 1, as in the script of SQuAD 2.0.
    """
    best, words = 0.0, _normalize_words(answer)
    for reference_words in map(_normalize_words, references):
        if words and reference_words:
            common = (Counter(words) & Counter(reference_words)).total()
            best = max(best, 2 * common / (len(words) + len(reference_words)))
        else:
            best = max(best, float(words == reference_words))
    return best


def exact_match(answer: str, references: Sequence[str]) -> float:
    """1 if the answer has the words of a reference, without case, punctuation and articles: Rajpurkar et al. 2016."""
    words = _normalize_words(answer)
    return float(any(words == _normalize_words(reference) for reference in references))


def contains_reference(answer: str, references: Sequence[str]) -> float:
    """1 if the words of a reference occur in the answer one after the other; fair to answers in whole sentences."""
    text = f" {' '.join(_normalize_words(answer))} "
    return float(any(f" {' '.join(_normalize_words(reference))} " in text for reference in references))


def rouge_l(answer: str, references: Sequence[str]) -> float:
    """The F1 of the longest common subsequence of words with the best reference; words as in `token_f1`.

    Lin, ROUGE: a package for automatic evaluation of summaries, ACL workshop 2004, with equal weights.
    """
    words = _normalize_words(answer)
    return max((_subsequence_f1(words, _normalize_words(reference)) for reference in references), default=0.0)


def lexical_support(text: str, sources: Sequence[str]) -> float:
    """The share of the text's words that occur in the sources, from 0 to 1; 1 for a text without words.

    It is the unigram precision. It does not notice a wrong combination of right words.
    """
    words, source_words = _normalize_words(text), set(_normalize_words(" ".join(sources)))
    return sum(word in source_words for word in words) / len(words) if words else 1.0


def citation_recall(sentences: Sequence[tuple[str, Sequence[str]]]) -> float:
    """The mean support of the sentences by all that each cites; a sentence without a citation counts as 0.

    `sentences` holds each with its quotes. Gao et al., Enabling large language models to generate text with citations,
    EMNLP 2023, but with `lexical_support` instead of an entailment model, and so without a threshold.
    """
    supports = [lexical_support(text, quotes) if quotes else 0.0 for text, quotes in sentences]
    return sum(supports) / len(supports) if supports else 0.0


def citation_precision(sentences: Sequence[tuple[str, Sequence[str]]]) -> float:
    """The mean support of a sentence by each of its citations alone; 0 without citations. See `citation_recall`."""
    supports = [lexical_support(text, [quote]) for text, quotes in sentences for quote in quotes]
    return sum(supports) / len(supports) if supports else 0.0


@dataclass(frozen=True, slots=True)
class Agreement:
    precision: float
    recall: float


def sentence_agreement(selected: Set[str], gold: Set[str]) -> Agreement:
    """The share of the selected sentences that are gold, and of the gold ones that are selected; 0 for an empty set.

    Thorne et al., FEVER: a large-scale dataset for fact extraction and verification, NAACL 2018, for evidence.
    """
    both = len(selected & gold)
    return Agreement(both / max(1, len(selected)), both / max(1, len(gold)))


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """The probability that a positive one scores above a negative one; a tie counts half. At least one of each.

    Mann and Whitney 1947; Hanley and McNeil, The meaning and use of the area under a ROC curve, Radiology 1982.
    """
    ordered = np.sort(np.asarray(negative, np.float64))
    below = np.searchsorted(ordered, positive, "left") + np.searchsorted(ordered, positive, "right")
    return float(below.mean() / (2 * len(ordered)))


def auroc_estimate(
    positive: Sequence[float], negative: Sequence[float], seed: int = 0, resamples: int = 1_000
) -> Estimate:
    """The AUROC with percentiles of a bootstrap that resamples each side by itself (Efron 1979)."""
    generator = np.random.default_rng(seed)
    areas = [auroc(_resample(positive, generator), _resample(negative, generator)) for _ in range(resamples)]
    low, high = np.percentile(areas, [2.5, 97.5])
    return Estimate(auroc(positive, negative), float(low), float(high))


def calibration_error(confidences: Sequence[float], right: Sequence[float], bins: int = 10) -> float:
    """The mean difference between confidence and accuracy, over bins of equal size; `right` holds 1 or 0 per answer.

    Naeini, Cooper and Hauskrecht, Obtaining well calibrated probabilities using Bayesian binning, AAAI 2015; with
    bins of equal size instead of equal width, because most confidences are high.
    """
    expected, outcomes = np.asarray(confidences, np.float64), np.asarray(right, np.float64)
    parts = [part for part in np.array_split(np.argsort(expected, kind="stable"), bins) if len(part)]
    return float(sum(len(part) * abs(expected[part].mean() - outcomes[part].mean()) for part in parts) / len(expected))


def share_estimate(count: int, total: int) -> Estimate:
    """The share with its 95 % interval; `total` is at least 1.

    Wilson, Probable inference, the law of succession, and statistical inference, JASA 1927.
    """
    mean, spread = count / total, Z * Z / total
    centre, half = mean + spread / 2, Z * sqrt(mean * (1 - mean) / total + spread / (4 * total))
    return Estimate(mean, max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread)))


def _normalize_words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def _subsequence_f1(words: Sequence[str], other: Sequence[str]) -> float:
    if not words or not other:
        return float(words == other)
    lengths = [0] * (len(other) + 1)
    for word in words:
        diagonal = 0
        for column, other_word in enumerate(other, start=1):
            above = lengths[column]
            lengths[column] = diagonal + 1 if word == other_word else max(above, lengths[column - 1])
            diagonal = above
    return 2 * lengths[-1] / (len(words) + len(other))


def _resample(values: Sequence[float], generator: np.random.Generator) -> list[float]:
    resampled: list[float] = generator.choice(np.asarray(values, np.float64), len(values)).tolist()
    return resampled
