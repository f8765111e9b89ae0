"""The bins of a reliability diagram."""

import pytest

from rag_core.evaluation.answers import calibration_error, share_estimate
from rag_core.evaluation.reliability import ReliabilityBin, reliability_bins


def test_bins_hold_equally_many_answers_of_similar_confidence() -> None:
    bins = reliability_bins([0.9, 0.1, 0.8, 0.2], [True, False, True, True], bins=2)
    assert bins == [
        ReliabilityBin(confidence=pytest.approx(0.15), right=share_estimate(1, 2), count=2),
        ReliabilityBin(confidence=pytest.approx(0.85), right=share_estimate(2, 2), count=2),
    ]


def test_few_answers_make_few_bins() -> None:
    assert [group.count for group in reliability_bins([0.5, 0.7], [True, False], bins=10)] == [1, 1]
    assert reliability_bins([], [], bins=10) == []


def test_the_calibration_error_is_the_mean_distance_of_the_bins_from_the_diagonal() -> None:
    confidences, right = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9, 0.95], [False, True, False, True, True, False, True]
    bins = reliability_bins(confidences, right, bins=3)
    distances = [group.count * abs(group.confidence - group.right.mean) for group in bins]
    expected = calibration_error(confidences, [float(value) for value in right], bins=3)
    assert sum(distances) / len(right) == pytest.approx(expected)
