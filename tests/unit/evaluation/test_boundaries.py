"""Boundaries against published values, and against all ways to pair them."""

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.evaluation.boundaries import BoundaryScores, boundary_scores

PLACES = st.lists(st.integers(1, 30), unique=True, max_size=5).map(sorted)


@pytest.mark.parametrize(
    ("predicted", "true", "tolerance", "scores"),
    [
        ([105, 199, 250, 302], [100, 200, 300], 5, (0.75, 1.0, 6 / 7)),
        ([105, 199, 250, 302], [100, 200, 300], 0, (0.0, 0.0, 0.0)),
        ([], [], 0, (1.0, 1.0, 1.0)),
        ([], [7], 0, (0.0, 0.0, 0.0)),
        ([7], [], 0, (0.0, 0.0, 0.0)),
        ([9, 10, 11], [10], 1, (1 / 3, 1.0, 0.5)),
    ],
)
def test_precision_recall_and_f1(
    predicted: list[int], true: list[int], tolerance: int, scores: tuple[float, float, float]
) -> None:
    assert boundary_scores(predicted, true, tolerance) == BoundaryScores(*map(pytest.approx, scores))


@given(PLACES, PLACES, st.integers(0, 6))
def test_no_other_pairing_matches_more(predicted: list[int], true: list[int], tolerance: int) -> None:
    few, many = sorted((predicted, true), key=len)
    most = max(
        sum(abs(a - b) <= tolerance for a, b in zip(few, order, strict=True))
        for subset in combinations(many, len(few))
        for order in permutations(subset)
    )
    assert boundary_scores(predicted, true, tolerance).precision == pytest.approx(
        most / max(1, len(predicted)) if predicted or true else 1.0
    )
