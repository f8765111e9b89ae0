"""Rankings into one: pure functions of what the legs gave their candidates, best first, ties by id.

A leg that does not know a candidate's score gives NaN for it, and then counts as if it had given its own lowest one.
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
"""Of a UUID: its order, compared in a tenth of the time."""

DIGITS = 12
"""Decimals of a fused score: what differs less is a tie, whatever the order in which it was added up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The union of what the legs found, by id. Both matrices have the shape (legs, chunks).

    `scores` are NaN where a leg gave none; `ranks` count from 1, and are infinite where a leg did not find the chunk.
    """

    legs: tuple[str, ...]
    ids: tuple[UUID, ...]
    scores: Scores
    ranks: Scores

    def find_unscored(self, leg: str) -> list[UUID]:
        """The chunks that the leg gave no score, in the order of `ids`."""
        row = self.scores[self.legs.index(leg)]
        return [self.ids[place] for place in np.flatnonzero(np.isnan(row)).tolist()]

    def with_scores(self, leg: str, scores: Sequence[float]) -> "Candidates":
        """With the leg's scores for those that it is missing, in their order; ranks stay as they are."""
        matrix, row = self.scores.copy(), self.legs.index(leg)
        matrix[row, np.isnan(matrix[row])] = scores
        return replace(self, scores=matrix)

    def scores_by_leg(self, ids: Sequence[UUID]) -> list[dict[str, float]]:
        """For each of these chunks the scores that legs gave it, by leg."""
        places = {id: place for place, id in enumerate(self.ids)}
        columns = self.scores[:, [places[id] for id in ids]].T.tolist()
        return [
            {leg: score for leg, score in zip(self.legs, column, strict=True) if not isnan(score)} for column in columns
        ]


def merge_rankings(rankings: Mapping[str, Ranking]) -> Candidates:
    """By leg. What a ranking has twice counts where it stands first."""
    ids = sorted({id for ranking in rankings.values() for id, _ in ranking}, key=_INT)
    first = [_first(ranking) for ranking in rankings.values()]
    shape = (len(rankings), len(ids))
    found = [found.get(id, (np.inf, nan)) for found in first for id in ids]
    ranks, scores = np.array(found, np.float64).reshape(*shape, 2).transpose(2, 0, 1)
    return Candidates(legs=tuple(rankings), ids=tuple(ids), scores=scores, ranks=ranks)


def fuse_distribution(candidates: Candidates, weights: Mapping[str, float]) -> Ranking:
    """Weighted z-scores over the union. A leg without variance says nothing. Weights are shares of their sum.

    A convex combination of scores, normalised by mean and deviation: Bruch, Gai and Ingber, An analysis of fusion
    functions for hybrid retrieval, TOIS 2023, sections 3 and 4.
    """
    fused = _shares(candidates.legs, weights) @ z_scores(candidates)
    return _ranked(candidates.ids, fused.round(DIGITS).tolist())


def fuse_weighted(candidates: Candidates, weights: Mapping[str, float]) -> Ranking:
    """Weighted scores, each leg's scaled to [0, 1] over the union. Weights are shares of their sum.

    Bruch, Gai and Ingber (as above): TM2C2 with the smallest score seen in the place of the smallest possible one.
    """
    known = _completed(candidates.scores)
    scaled = _divided(known - _lowest(known), _range(known))
    return _ranked(candidates.ids, (_shares(candidates.legs, weights) @ scaled).round(DIGITS).tolist())


def fuse_rrf(candidates: Candidates, k: int) -> Ranking:
    """The sum of 1 / (k + rank) over the legs that found the chunk.

    Cormack, Clarke and Büttcher, Reciprocal rank fusion outperforms Condorcet and individual rank learning methods,
    SIGIR 2009.
    """
    return _ranked(candidates.ids, [fsum(column) for column in (1 / (k + candidates.ranks)).T])


def fuse_ltr(
    candidates: Candidates, intercept: float, score_weights: Mapping[str, float], rank_weights: Mapping[str, float]
) -> Ranking:
    """The probability of relevance, by a logistic regression over `features`. A leg that is not named counts nothing.

    Gey, Inferring probability of relevance using the method of logistic regression, SIGIR 1994.
    """
    pairs = [(score_weights.get(leg, 0.0), rank_weights.get(leg, 0.0)) for leg in candidates.legs]
    logits = intercept + features(candidates) @ np.array(pairs, np.float64).reshape(-1)
    return [(id, _probability(logit)) for id, logit in _ranked(candidates.ids, logits.round(DIGITS).tolist())]


def features(candidates: Candidates) -> Scores:
    """What `ltr` is trained on. Shape (chunks, 2 x legs): each leg's z-score, then 1 / rank, 0 where it has none."""
    pairs = np.stack([z_scores(candidates), 1 / candidates.ranks], axis=1)
    return pairs.reshape(2 * len(candidates.legs), len(candidates.ids)).T


def z_scores(candidates: Candidates) -> Scores:
    """Shape (legs, chunks): distances from the leg's mean over the union, in standard deviations."""
    known = _completed(candidates.scores)
    if not candidates.ids:
        return known
    deviations = np.where(_range(known) > 0, known.std(axis=1, keepdims=True), 0.0)
    return _divided(known - known.mean(axis=1, keepdims=True), deviations)


def _completed(scores: Scores) -> Scores:
    lowest = _lowest(np.where(np.isnan(scores), np.inf, scores))
    return np.where(np.isnan(scores), np.where(np.isinf(lowest), 0.0, lowest), scores)


def _lowest(scores: Scores) -> Scores:
    lowest: Scores = scores.min(axis=1, keepdims=True, initial=np.inf)
    return lowest


def _range(scores: Scores) -> Scores:
    highest: Scores = scores.max(axis=1, keepdims=True, initial=-np.inf)
    return highest - _lowest(scores)


def _divided(scores: Scores, by: Scores) -> Scores:
    """0 throughout where a leg's divisor is 0."""
    return np.divide(scores, by, out=np.zeros_like(scores), where=by > 0)


def _probability(logit: float) -> float:
    return float(1 / (1 + np.exp(-np.clip(logit, -700, 700))))


def _shares(legs: Sequence[str], weights: Mapping[str, float]) -> Scores:
    """Equal ones without weights, or where the legs that answered have none."""
    own = np.array([weights.get(leg, 0.0) for leg in legs], np.float64)
    return own / own.sum() if own.sum() > 0 else np.full(len(legs), 1 / max(1, len(legs)))


def _first(ranking: Ranking) -> dict[UUID, tuple[float, float]]:
    numbered = [(id, (float(rank), score)) for rank, (id, score) in enumerate(ranking, start=1)]
    return dict(reversed(numbered))


def _ranked(ids: Sequence[UUID], scores: Sequence[float]) -> Ranking:
    return sorted(zip(ids, scores, strict=True), key=lambda pair: (-pair[1], pair[0].int))
