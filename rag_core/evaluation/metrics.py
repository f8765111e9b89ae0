"""How well rankings agree with relevance grades, as trec_eval computes it (github.com/usnistgov/trec_eval).

A measure takes the ranking's ids, best first, and the grades of one question; ids are of documents or of chunks.
Grades below 1 are not relevant. Recall is found / all relevant, also where fewer could be found at k.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Scores: TypeAlias = Mapping[str, float]
Grades: TypeAlias = Mapping[str, int]
Id = TypeVar("Id", bound=Hashable)
Floats: TypeAlias = NDArray[np.float64]

CUTS = (1, 5, 10, 20, 100)


def ranked(scores: Scores) -> list[str]:
    """Ids in trec_eval's order: by score in single precision, ties by id, both descending."""
    return [id for _, id in sorted(((np.float32(score), id) for id, score in scores.items()), reverse=True)]


def distinct(ids: Iterable[Id]) -> list[Id]:
    """Each where it stands first: documents in the order of their best chunks."""
    return list(dict.fromkeys(ids))


def relevant(grades: Grades) -> list[str]:
    return [id for id, grade in grades.items() if grade > 0]


def recall(ranking: Sequence[str], grades: Grades, k: int) -> float:
    return _found(ranking, grades, k) / max(1, len(relevant(grades)))


def precision(ranking: Sequence[str], grades: Grades, k: int) -> float:
    """Of k, however short the ranking."""
    return _found(ranking, grades, k) / k


def f1(ranking: Sequence[str], grades: Grades, k: int) -> float:
    """The harmonic mean of precision and recall."""
    both = precision(ranking, grades, k), recall(ranking, grades, k)
    return 2 * both[0] * both[1] / sum(both) if all(both) else 0.0


def success(ranking: Sequence[str], grades: Grades, k: int) -> float:
    return float(_found(ranking, grades, k) > 0)


def reciprocal_rank(ranking: Sequence[str], grades: Grades, k: int | None = None) -> float:
    """Without k as trec_eval's recip_rank; MRR is its mean over questions."""
    hits = np.flatnonzero(_gains(ranking, grades, k))
    return float(1 / (hits[0] + 1)) if len(hits) else 0.0


def average_precision(ranking: Sequence[str], grades: Grades, k: int | None = None) -> float:
    """Over all relevant ones, also those that the ranking lacks; MAP is its mean over questions."""
    hits = _gains(ranking, grades, k) > 0
    precisions = np.cumsum(hits)[hits] / (np.flatnonzero(hits) + 1)
    return float(precisions.sum() / max(1, len(relevant(grades))))


def ndcg(ranking: Sequence[str], grades: Grades, k: int | None = None) -> float:
    """The gain is the grade itself, the discount log2(rank + 1): Järvelin and Kekäläinen 2002, as in trec_eval."""
    ideal = _discounted(np.sort(_gains(list(grades), grades, None))[::-1][:k])
    return _discounted(_gains(ranking, grades, k)) / ideal if ideal else 0.0


AT_K: Mapping[str, Callable[[Sequence[str], Grades, int], float]] = {
    "ndcg": ndcg,
    "recall": recall,
    "precision": precision,
    "f1": f1,
    "success": success,
    "mrr": reciprocal_rank,
}


def measures(ranking: Sequence[str], grades: Grades, cuts: Sequence[int] = CUTS) -> dict[str, float]:
    """All of one question, as `ndcg@10`; `mrr` and `map` are of the whole ranking."""
    whole = {"mrr": reciprocal_rank(ranking, grades), "map": average_precision(ranking, grades)}
    return whole | {f"{name}@{k}": measure(ranking, grades, k) for k in cuts for name, measure in AT_K.items()}


def oracle(candidates: Iterable[Id], grades: Mapping[Id, int]) -> list[Id]:
    """The best order in which these candidates could stand."""
    return sorted(distinct(candidates), key=lambda id: -max(0, grades.get(id, 0)))


def _gains(ranking: Sequence[str], grades: Grades, k: int | None) -> Floats:
    return np.array([max(0, grades.get(id, 0)) for id in ranking[:k]], dtype=np.float64)


def _found(ranking: Sequence[str], grades: Grades, k: int) -> int:
    return int(np.count_nonzero(_gains(ranking, grades, k)))


def _discounted(gains: Floats) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())
