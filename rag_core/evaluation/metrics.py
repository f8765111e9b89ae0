"""The agreement of rankings with relevance grades, as trec_eval computes it (github.com/usnistgov/trec_eval).

A measure takes the ids of a ranking, best first, and the grades of one question; ids are of documents or of chunks.
Grades below 1 are not relevant. Recall divides by all relevant ids, even if they are more than k.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Scores: TypeAlias = Mapping[str, float]
Grades: TypeAlias = Mapping[str, int]
Id = TypeVar("Id", bound=Hashable)
Floats: TypeAlias = NDArray[np.float64]

CUTOFFS = (1, 5, 10, 20, 100)


def rank_ids(scores: Scores) -> list[str]:
    """Returns the ids in trec_eval's order: by score in single precision, ties by id, both descending."""
    return [id for _, id in sorted(((np.float32(score), id) for id, score in scores.items()), reverse=True)]


def unique_ids(ids: Iterable[Id]) -> list[Id]:
    """Each id at its first position, such as documents in the order of their best chunks."""
    return list(dict.fromkeys(ids))


def relevant_ids(grades: Grades) -> list[str]:
    return [id for id, grade in grades.items() if grade > 0]


def recall(ranking: Sequence[str], grades: Grades, k: int) -> float:
    return _count_relevant(ranking, grades, k) / max(1, len(relevant_ids(grades)))


def precision(ranking: Sequence[str], grades: Grades, k: int) -> float:
    """The share of relevant ids in k, even if the ranking is shorter."""
    return _count_relevant(ranking, grades, k) / k


def f1(ranking: Sequence[str], grades: Grades, k: int) -> float:
    """The harmonic mean of precision and recall."""
    both = precision(ranking, grades, k), recall(ranking, grades, k)
    return 2 * both[0] * both[1] / sum(both) if all(both) else 0.0


def success(ranking: Sequence[str], grades: Grades, k: int) -> float:
    return float(_count_relevant(ranking, grades, k) > 0)


def reciprocal_rank(ranking: Sequence[str], grades: Grades, k: int | None = None) -> float:
    """The reciprocal of the first relevant rank; without k, trec_eval's recip_rank. MRR is its mean over questions."""
    hits = np.flatnonzero(_gains(ranking, grades, k))
    return float(1 / (hits[0] + 1)) if len(hits) else 0.0


def average_precision(ranking: Sequence[str], grades: Grades, k: int | None = None) -> float:
    """The mean over all relevant ids, including those that the ranking lacks. MAP is its mean over questions."""
    hits = _gains(ranking, grades, k) > 0
    precisions = np.cumsum(hits)[hits] / (np.flatnonzero(hits) + 1)
    return float(precisions.sum() / max(1, len(relevant_ids(grades))))


def ndcg(ranking: Sequence[str], grades: Grades, k: int | None = None) -> float:
    """The gain is the grade itself, the discount log2(rank + 1): Järvelin and Kekäläinen 2002, as in trec_eval."""
    ideal = _discount_and_sum(np.sort(_gains(list(grades), grades, None))[::-1][:k])
    return _discount_and_sum(_gains(ranking, grades, k)) / ideal if ideal else 0.0


MEASURES_AT_K: Mapping[str, Callable[[Sequence[str], Grades, int], float]] = {
    "ndcg": ndcg,
    "recall": recall,
    "precision": precision,
    "f1": f1,
    "success": success,
    "mrr": reciprocal_rank,
}


def measures(ranking: Sequence[str], grades: Grades, cutoffs: Sequence[int] = CUTOFFS) -> dict[str, float]:
    """All measures of one question, by names such as `ndcg@10`; `mrr` and `map` are of the complete ranking."""
    uncut = {"mrr": reciprocal_rank(ranking, grades), "map": average_precision(ranking, grades)}
    return uncut | {
        f"{name}@{k}": measure(ranking, grades, k) for k in cutoffs for name, measure in MEASURES_AT_K.items()
    }


def ideal_ranking(candidates: Iterable[Id], grades: Mapping[Id, int]) -> list[Id]:
    """The candidates in the best possible order."""
    return sorted(unique_ids(candidates), key=lambda id: -max(0, grades.get(id, 0)))


def _gains(ranking: Sequence[str], grades: Grades, k: int | None) -> Floats:
    return np.array([max(0, grades.get(id, 0)) for id in ranking[:k]], dtype=np.float64)


def _count_relevant(ranking: Sequence[str], grades: Grades, k: int) -> int:
    return int(np.count_nonzero(_gains(ranking, grades, k)))


def _discount_and_sum(gains: Floats) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())
