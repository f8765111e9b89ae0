"""Fusion against values worked out by hand, and what must hold for any rankings."""

from collections.abc import Callable
from functools import partial
from math import log, sqrt
from uuid import UUID

import numpy as np
import pytest
from example_counts import scale_examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_core.protocols import Ranking
from rag_core.retrieval.fusion import (
    Candidates,
    features,
    fuse_distribution,
    fuse_ltr,
    fuse_rrf,
    fuse_weighted,
    merge_rankings,
)

A, B, C, D = (UUID(int=n) for n in range(1, 5))
calmly = settings(deadline=None, max_examples=scale_examples(50), suppress_health_check=[HealthCheck.too_slow])
HALVES = {"dense": 0.5, "bm25": 0.5}
FUSIONS: list[Callable[[Candidates], Ranking]] = [
    partial(fuse_distribution, weights=HALVES),
    partial(fuse_weighted, weights=HALVES),
    partial(fuse_rrf, k=60),
    partial(fuse_ltr, intercept=-1.0, score_weights=HALVES, rank_weights=HALVES),
]
rankings = st.lists(
    st.tuples(st.integers(1, 40).map(lambda n: UUID(int=n)), st.integers(-99, 99).map(float)),
    unique_by=lambda pair: pair[0],
    max_size=20,
).map(lambda pairs: sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def candidates_from_scores(**legs: list[float]) -> Candidates:
    """Candidates A, B, C ... that have a score of every leg."""
    return merge_rankings(
        {
            leg: sorted(((UUID(int=n), score) for n, score in enumerate(scores, 1)), key=lambda pair: -pair[1])
            for leg, scores in legs.items()
        }
    )


def ids(ranking: Ranking) -> list[UUID]:
    return [id for id, _ in ranking]


def test_merged_rankings_have_every_chunk_once_with_its_rank_in_each_leg() -> None:
    both = merge_rankings({"dense": [(B, 0.9), (A, 0.4)], "bm25": [(C, 7.0), (B, 2.0), (C, 1.0)]})
    assert both.ids == (A, B, C)
    np.testing.assert_array_equal(both.ranks, [[2, 1, np.inf], [np.inf, 2, 1]])
    np.testing.assert_array_equal(both.scores, [[0.4, 0.9, np.nan], [np.nan, 2.0, 7.0]])
    assert (both.find_unscored("dense"), both.find_unscored("bm25")) == ([C], [A])
    assert both.scores_by_leg([C, B]) == [{"bm25": 7.0}, {"dense": 0.9, "bm25": 2.0}]


def test_with_scores_adds_the_missing_scores_of_a_leg_and_no_ranks() -> None:
    both = merge_rankings({"dense": [(A, 0.4)], "bm25": [(C, 7.0)]})
    full = both.with_scores("dense", [0.1])
    assert full.scores_by_leg([A, C]) == [{"dense": 0.4}, {"dense": 0.1, "bm25": 7.0}]
    np.testing.assert_array_equal(full.ranks, both.ranks)
    assert both.find_unscored("dense") == [C]


def test_distribution_is_the_weighted_sum_of_z_scores() -> None:
    # dense: mean 2, deviation sqrt(2/3); bm25: mean 20, deviation sqrt(200/3)
    fused = dict(
        fuse_distribution(
            candidates_from_scores(dense=[3.0, 2.0, 1.0], bm25=[10.0, 30.0, 20.0]), {"dense": 3, "bm25": 1}
        )
    )
    one = sqrt(3 / 2)
    assert fused == pytest.approx({A: 0.75 * one - 0.25 * one, B: 0.25 * one, C: -0.75 * one})


def test_weighted_scales_each_leg_to_one() -> None:
    fused = dict(
        fuse_weighted(
            candidates_from_scores(dense=[4.0, 3.0, 0.0], bm25=[10.0, 30.0, 20.0]), {"dense": 0.6, "bm25": 0.4}
        )
    )
    assert fused == pytest.approx({A: 0.6, B: 0.6 * 0.75 + 0.4, C: 0.2})


def test_rrf_prefers_a_chunk_that_two_rankings_agree_on() -> None:
    fused = fuse_rrf(merge_rankings({"dense": [(A, 0.9), (B, 0.8)], "bm25": [(B, 3.0), (C, 1.0)]}), k=60)
    assert ids(fused) == [B, A, C]
    assert fused[0][1] == 1 / 62 + 1 / 61


def test_rrf_breaks_ties_by_id_in_any_order_of_the_ranks() -> None:
    first = {
        "a": [(A, 3.0), (B, 2.0), (C, 1.0)],
        "b": [(B, 3.0), (C, 2.0), (A, 1.0)],
        "c": [(C, 3.0), (A, 2.0), (B, 1.0)],
    }
    fused = fuse_rrf(merge_rankings(first), k=60)
    assert ids(fused) == [A, B, C]
    assert len({score for _, score in fused}) == 1


def test_ltr_is_the_probability_of_a_regression_over_scores_and_ranks() -> None:
    # of one chunk that only bm25 found, and two that have dense scores -1 and 1 in deviations
    both = merge_rankings({"dense": [(A, 2.0), (B, 1.0)], "bm25": [(B, 5.0)]})
    fused = dict(fuse_ltr(both, -0.5, {"dense": 2.0}, {"dense": 0.5, "bm25": 4.0}))
    logits = {id: log(p / (1 - p)) for id, p in fused.items()}
    assert logits == pytest.approx({A: -0.5 + 2.0 + 0.5, B: -0.5 - 2.0 + 0.25 + 4.0})


def test_features_are_each_legs_deviation_and_reciprocal_rank() -> None:
    both = merge_rankings({"dense": [(A, 2.0), (B, 1.0)], "bm25": [(B, 5.0)]})
    np.testing.assert_allclose(features(both), [[1, 1, 0, 0], [-1, 0.5, 0, 1]])


def test_ltr_also_orders_chunks_whose_probability_is_almost_1() -> None:
    fused = fuse_ltr(candidates_from_scores(dense=[1.0, 2.0, 3.0]), 1000.0, {"dense": 5.0}, {})
    assert ids(fused) == [C, B, A]
    assert [score for _, score in fused] == pytest.approx([1, 1, 1])
    assert fuse_ltr(candidates_from_scores(dense=[1.0, 2.0]), -1e6, {"dense": 5.0}, {})[0][0] == B


@pytest.mark.parametrize("fuse", FUSIONS)
def test_a_leg_with_equal_scores_does_not_change_the_order_of_the_others(fuse: Callable[[Candidates], Ranking]) -> None:
    same = [(A, 1.0), (B, 1.0), (C, 1.0)]
    if fuse.func in (fuse_distribution, fuse_weighted):  # type: ignore[attr-defined]
        assert ids(fuse(merge_rankings({"dense": same, "bm25": [(C, 3.0), (A, 2.0), (B, 1.0)]}))) == [C, A, B]
    assert ids(fuse(merge_rankings({"dense": same}))) == [A, B, C]


@pytest.mark.parametrize("fuse", FUSIONS)
def test_one_candidate_and_none_are_fused(fuse: Callable[[Candidates], Ranking]) -> None:
    assert ids(fuse(merge_rankings({"dense": [(D, 0.3)], "bm25": []}))) == [D]
    assert fuse(merge_rankings({"dense": [], "bm25": []})) == []
    assert fuse(merge_rankings({})) == []


def test_a_missing_score_counts_as_the_lowest_of_the_leg() -> None:
    partly = merge_rankings({"dense": [(A, 3.0), (B, 2.0), (C, 1.0)], "bm25": [(A, 9.0), (B, 5.0)]})
    filled = partly.with_scores("bm25", [5.0])
    assert fuse_distribution(partly, HALVES) == fuse_distribution(filled, HALVES)
    assert fuse_weighted(partly, HALVES) == fuse_weighted(filled, HALVES)


def test_weights_are_divided_by_the_sum_over_the_legs_that_answered() -> None:
    alone = candidates_from_scores(dense=[3.0, 1.0])
    assert fuse_distribution(alone, {"dense": 0.2, "bm25": 0.8}) == fuse_distribution(alone, {"dense": 1.0})
    assert fuse_distribution(alone, {"bm25": 1.0}) == fuse_distribution(alone, {})


def test_a_leg_of_weight_zero_only_adds_candidates() -> None:
    both = merge_rankings({"dense": [(A, 3.0), (B, 2.0)], "bm25": [(C, 9.0), (B, 5.0)]}).with_scores("dense", [2.5])
    assert ids(fuse_distribution(both, {"dense": 1.0, "bm25": 0.0})) == [A, C, B]


@pytest.mark.parametrize("fuse", FUSIONS)
@calmly
@given(dense=rankings, bm25=rankings)
def test_a_fusion_ranks_every_candidate_once_best_first_ties_by_id(
    fuse: Callable[[Candidates], Ranking], dense: Ranking, bm25: Ranking
) -> None:
    fused = fuse(merge_rankings({"dense": dense, "bm25": bm25}))
    assert {id for id, _ in fused} == {id for id, _ in dense + bm25}
    assert fused == sorted(fused, key=lambda pair: (-pair[1], pair[0]))
    assert np.isfinite([score for _, score in fused]).all()


@calmly
@given(dense=rankings, bm25=rankings, factor=st.sampled_from([0.01, 3.0, 1000.0]), offset=st.integers(-50, 50))
def test_distribution_and_weighted_do_not_depend_on_a_legs_scale(
    dense: Ranking, bm25: Ranking, factor: float, offset: int
) -> None:
    scaled = [(id, score * factor + offset) for id, score in bm25]
    for fuse in (fuse_distribution, fuse_weighted):
        before = dict(fuse(merge_rankings({"dense": dense, "bm25": bm25}), HALVES))
        assert dict(fuse(merge_rankings({"dense": dense, "bm25": scaled}), HALVES)) == pytest.approx(before, abs=1e-9)


@calmly
@given(dense=rankings, bm25=rankings)
def test_the_order_of_the_legs_changes_nothing(dense: Ranking, bm25: Ranking) -> None:
    for fuse in FUSIONS:
        one, other = merge_rankings({"dense": dense, "bm25": bm25}), merge_rankings({"bm25": bm25, "dense": dense})
        assert fuse(one) == fuse(other)
