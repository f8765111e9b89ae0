"""Live answers against those of an evaluation."""

import pytest

from rag_core.evaluation.drift import AnswerScore, format_drifts, measure_drift


def scores(*confidences: float | None) -> list[AnswerScore]:
    """One answer per confidence; without one it is an abstention."""
    return [
        AnswerScore(finish="stop" if confidence is not None else "abstained", confidence=confidence)
        for confidence in confidences
    ]


def test_drift_is_the_difference_of_the_means_with_an_interval() -> None:
    abstention, confidence = measure_drift(scores(0.2, 0.4, None, None), scores(0.6, 0.8, 0.6, 0.8))
    assert (abstention.live, abstention.run, abstention.difference) == (0.5, 0.0, 0.5)
    assert (confidence.live_answers, confidence.run_answers) == (2, 4)
    assert confidence.difference == pytest.approx(-0.4)
    margin = 1.96 * (0.02 / 2 + 0.04 / 3 / 4) ** 0.5
    assert (confidence.low, confidence.high) == (pytest.approx(-0.4 - margin), pytest.approx(-0.4 + margin))


def test_a_measure_with_a_single_value_has_no_drift() -> None:
    assert [drift.measure for drift in measure_drift(scores(0.5, None), scores(0.5, 0.5))] == ["abstention"]
    assert measure_drift([], scores(0.5, 0.5)) == []


def test_metrics_are_gauges() -> None:
    text = format_drifts(measure_drift(scores(None, None), scores(None, 0.5)), "gpu")
    assert text.endswith('rag_live_score_drift{measure="abstention",profile="gpu"} 0.5\n')
