import numpy as np
import pytest

from rag_core.evaluation import significance
from rag_core.evaluation.significance import (
    Estimate,
    detectable_difference,
    estimate_groups,
    estimates,
    holm,
    randomisation_p,
    worse_p,
)

A = [0.70, 0.30, 0.20, 0.60, 0.40, 0.55, 0.80, 0.10, 0.65, 0.35]
B = [0.50, 0.10, 0.00, 0.20, 0.40, 0.60, 0.70, 0.15, 0.50, 0.30]


def test_few_questions_are_flipped_in_every_way() -> None:
    assert randomisation_p(A, B) == 0.03125
    assert randomisation_p(B, A) == 0.03125


def test_many_questions_are_flipped_at_random_and_agree_with_the_exact_value(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(3)
    one, other = chance.normal(0.58, 0.2, 16), chance.normal(0.4, 0.2, 16)
    exact = randomisation_p(one.tolist(), other.tolist())
    monkeypatch.setattr(significance, "MAX_EXACT_QUESTIONS", 0)
    drawn = randomisation_p(one.tolist(), other.tolist())
    assert 0.01 < exact < 0.7
    assert drawn == pytest.approx(exact, abs=0.005)


def test_equal_runs_do_not_differ_and_the_seed_decides_what_is_drawn() -> None:
    ones = [0.5] * 40
    assert randomisation_p(ones, ones) == 1.0
    values = np.linspace(0, 1, 40).tolist()
    assert randomisation_p(values, ones, seed=1) == randomisation_p(values, ones, seed=1)
    assert randomisation_p(values, ones, seed=1) != randomisation_p(values, ones, seed=2)


def test_a_drawn_p_is_never_zero() -> None:
    assert randomisation_p([1.0] * 30, [0.0] * 30, flips=1_000) == 1 / 1_001


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution_for_many_questions() -> None:
    values = np.random.default_rng(7).normal(0.5, 0.2, 400)
    (estimate,) = estimates(values[:, None])
    error = 1.96 * values.std() / np.sqrt(len(values))
    assert estimate.mean == pytest.approx(values.mean())
    assert estimate.low == pytest.approx(values.mean() - error, abs=0.002)
    assert estimate.high == pytest.approx(values.mean() + error, abs=0.002)


def test_columns_are_resampled_alike_and_by_their_seed() -> None:
    values = np.array([A, B, A]).T
    one, other, same = estimates(values, seed=4)
    assert one == same != other
    assert estimates(values, seed=4) == [one, other, same]
    assert estimates(values, seed=5)[0].low != one.low


def test_differences_of_rounding_are_ties() -> None:
    sums = [0.1 + 0.2] * 20
    assert sums[0] != 0.3
    assert randomisation_p(sums, [0.3] * 20) == 1.0
    assert worse_p([0.3] * 20, sums) == 1.0


def test_ties_do_not_change_p() -> None:
    assert randomisation_p([*A, 0.5, 0.1], [*B, 0.5, 0.1]) == randomisation_p(A, B)


def test_a_loss_is_tested_on_one_side() -> None:
    # the smaller half of the two-sided .03125, and its complement with the signs that give the observed mean
    assert worse_p(B, A) == 0.03125 / 2
    assert worse_p(A, B) > 1 - 0.03125 / 2


def test_holm_multiplies_by_the_number_of_hypotheses_that_are_left() -> None:
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert list(adjusted) == ["a", "b", "c", "d"]
    assert holm({}) == {}


@pytest.mark.parametrize(
    ("questions", "deviation", "detectable"), [(300, 0.204, 0.033), (300, 0.121, 0.0196), (169, 0.204, 0.044)]
)
def test_the_detectable_difference_falls_with_the_root_of_the_questions(
    questions: int, deviation: float, detectable: float
) -> None:
    values = np.random.default_rng(1).normal(size=questions)
    differences = (values - values.mean()) / values.std(ddof=1) * deviation
    assert detectable_difference(differences) == pytest.approx(detectable, abs=0.0005)


def test_a_stratified_mean_weighs_questions_and_its_interval_ignores_the_gap_between_groups() -> None:
    low, high = np.linspace(0.0, 0.1, 60), np.linspace(0.9, 1.0, 40)
    estimate = estimate_groups([low, high])
    (mixed,) = estimates(np.concatenate([low, high])[:, None])
    assert estimate.mean == pytest.approx(mixed.mean) == pytest.approx(0.41)
    assert estimate.high - estimate.low < 0.02 < 0.1 < mixed.high - mixed.low


def test_one_group_is_estimated_like_a_column() -> None:
    values = np.array(A)
    assert [estimate_groups([values])] == estimates(values[:, None])
    assert estimate_groups([np.zeros(5)]) == Estimate(0.0, 0.0, 0.0)
