"""Fusion of several rankings into one, by pure functions of the legs' scores and ranks.

Fused rankings are best first; ties by id. If a leg returns NaN for a candidate's score, its own lowest score counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, isnan, nan
from operator import attrgetter
from typing import TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from rag_core.protocols import Ranking

Scores: TypeAlias = NDArray[np.float64]

_INT = attrgetter("int")
"""The sort key of a UUID. It compares ten times as fast as the UUID itself."""

DIGITS = 12
"""The decimals of a fused score. Scores that differ only by the order of their summation then tie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The union of the chunks that the legs found, sorted by id. Both matrices have the shape (legs, chunks).

    A score is NaN if the leg returned none. Ranks count from 1; a rank is infinite if the leg did not find the chunk.
    """

    legs: tuple[str, ...]
    ids: tuple[UUID, ...]
    scores: Scores
    ranks: Scores

    def find_unscored(self, leg: str) -> list[UUID]:
        """The chunks without a score from this leg, in the order of `ids`."""
        row = self.scores[self.legs.index(leg)]
        return [self.ids[index] for index in np.flatnonzero(np.isnan(row)).tolist()]

    def with_scores(self, leg: str, scores: Sequence[float]) -> "Candidates":
        """A copy with the leg's scores for the chunks from `find_unscored`, in their order. Ranks do not change."""
        matrix, row = self.scores.copy(), self.legs.index(leg)
        matrix[row, np.isnan(matrix[row])] = scores
        return replace(self, scores=matrix)

    def scores_by_leg(self, ids: Sequence[UUID]) -> list[dict[str, float]]:
        """The scores of each of these chunks, by leg, without missing ones."""
        indexes = {id: index for index, id in enumerate(self.ids)}
        columns = self.scores[:, [indexes[id] for id in ids]].T.tolist()
        return [
            {leg: score for leg, score in zip(self.legs, column, strict=True) if not isnan(score)} for column in columns
        ]


def merge_rankings(rankings: Mapping[str, Ranking]) -> Candidates:
    """`rankings` are given by leg. If a ranking has a chunk twice, its first rank counts."""
    ids = sorted({id for ranking in rankings.values() for id, _ in ranking}, key=_INT)
    cells: list[tuple[float, float]] = []
    for ranking in rankings.values():
        ranked = {id: (float(rank), score) for rank, (id, score) in reversed(list(enumerate(ranking, start=1)))}
        cells += [ranked.get(id, (np.inf, nan)) for id in ids]
    ranks, scores = np.array(cells, np.float64).reshape(len(rankings), len(ids), 2).transpose(2, 0, 1)
    return Candidates(legs=tuple(rankings), ids=tuple(ids), scores=scores, ranks=ranks)


def fuse_distribution(candidates: Candidates, weights: Mapping[str, float]) -> Ranking:
    """Weighted sums of the legs' z-scores. A leg whose scores are all equal adds 0. Weights are divided by their sum.

    This is a convex combination of scores, normalized by mean and deviation: Bruch, Gai and Ingber, An analysis of
    fusion functions for hybrid retrieval, TOIS 2023, sections 3 and 4.
    """
    fused = leg_shares(candidates.legs, weights) @ z_scores(candidates)
    return _sort_by_score(candidates.ids, fused.round(DIGITS).tolist())


def fuse_weighted(candidates: Candidates, weights: Mapping[str, float]) -> Ranking:
    """Weighted sums of the legs' scores, each leg scaled to [0, 1]. Weights are divided by their sum.

    This is TM2C2 of the same paper, with the lowest score of the candidates instead of the lowest possible score.
    """
    scores = _fill_missing(candidates.scores)
    scaled = _divide(scores - _lowest(scores), _range(scores))
    return _sort_by_score(candidates.ids, (leg_shares(candidates.legs, weights) @ scaled).round(DIGITS).tolist())


def fuse_unscaled(candidates: Candidates, weights: Mapping[str, float]) -> Ranking:
    """Weighted sums of the legs' scores as they are; a missing score counts as 0. Weights are divided by their sum."""
    fused = leg_shares(candidates.legs, weights) @ np.nan_to_num(candidates.scores)
    return _sort_by_score(candidates.ids, fused.round(DIGITS).tolist())


def fuse_rrf(candidates: Candidates, k: int) -> Ranking:
    """The sum of 1 / (k + rank) over the legs that found the chunk.

    Cormack, Clarke and Büttcher, Reciprocal rank fusion outperforms Condorcet and individual rank learning methods,
    SIGIR 2009.
    """
    return _sort_by_score(candidates.ids, [fsum(column) for column in (1 / (k + candidates.ranks)).T])


def fuse_ltr(
    candidates: Candidates, intercept: float, score_weights: Mapping[str, float], rank_weights: Mapping[str, float]
) -> Ranking:
    """Probabilities of relevance, by logistic regression over `features`. A leg without weights adds 0.

    Gey, Inferring probability of relevance using the method of logistic regression, SIGIR 1994.
    """
    pairs = [(score_weights.get(leg, 0.0), rank_weights.get(leg, 0.0)) for leg in candidates.legs]
    logits = intercept + features(candidates) @ np.array(pairs, np.float64).reshape(-1)
    ranking = _sort_by_score(candidates.ids, logits.round(DIGITS).tolist())
    return [(id, float(1 / (1 + np.exp(-np.clip(logit, -700, 700))))) for id, logit in ranking]


def features(candidates: Candidates) -> Scores:
    """The features of `fuse_ltr`. Shape (chunks, 2 x legs): each leg's z-score, then 1 / rank, or 0 without a rank."""
    pairs = np.stack([z_scores(candidates), 1 / candidates.ranks], axis=1)
    return pairs.reshape(2 * len(candidates.legs), len(candidates.ids)).T


def z_scores(candidates: Candidates) -> Scores:
    """The distances of the scores from the leg's mean, in standard deviations. Shape (legs, chunks)."""
    scores = _fill_missing(candidates.scores)
    if not candidates.ids:
        return scores
    deviations = np.where(_range(scores) > 0, scores.std(axis=1, keepdims=True), 0.0)
    return _divide(scores - scores.mean(axis=1, keepdims=True), deviations)


def _fill_missing(scores: Scores) -> Scores:
    """Replaces NaN by the leg's lowest score, or by 0 if the leg has no scores."""
    lowest = _lowest(np.where(np.isnan(scores), np.inf, scores))
    return np.where(np.isnan(scores), np.where(np.isinf(lowest), 0.0, lowest), scores)


def _lowest(scores: Scores) -> Scores:
    lowest: Scores = scores.min(axis=1, keepdims=True, initial=np.inf)
    return lowest


def _range(scores: Scores) -> Scores:
    highest: Scores = scores.max(axis=1, keepdims=True, initial=-np.inf)
    return highest - _lowest(scores)


def _divide(scores: Scores, divisors: Scores) -> Scores:
    """The quotients; 0 for a leg whose divisor is 0."""
    return np.divide(scores, divisors, out=np.zeros_like(scores), where=divisors > 0)


def leg_shares(legs: Sequence[str], weights: Mapping[str, float]) -> Scores:
    """The weights of these legs, divided by their sum. If no leg has a weight, all shares are equal."""
    own_weights = np.array([weights.get(leg, 0.0) for leg in legs], np.float64)
    total = own_weights.sum()
    return own_weights / total if total > 0 else np.full(len(legs), 1 / max(1, len(legs)))


def _sort_by_score(ids: Sequence[UUID], scores: Sequence[float]) -> Ranking:
    return sorted(zip(ids, scores, strict=True), key=lambda pair: (-pair[1], pair[0].int))
