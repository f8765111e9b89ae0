import numpy as np
import pytest

from rag_core.evaluation.significance import estimates, randomisation_p

A = [0.70, 0.30, 0.20, 0.60, 0.40, 0.55, 0.80, 0.10, 0.65, 0.35]
B = [0.50, 0.10, 0.00, 0.20, 0.40, 0.60, 0.70, 0.15, 0.50, 0.30]


def test_few_questions_are_flipped_in_every_way() -> None:
    assert randomisation_p(A, B) == 0.03125
    assert randomisation_p(B, A) == 0.03125


def test_many_questions_are_flipped_at_random_and_agree_with_the_exact_value() -> None:
    chance = np.random.default_rng(3)
    one, other = chance.normal(0.58, 0.2, 16), chance.normal(0.4, 0.2, 16)
    exact = randomisation_p(one.tolist(), other.tolist())
    # two more pairs that are equal change no sum, and lead to the other way of counting
    drawn = randomisation_p([*one, 0.5, 0.1], [*other, 0.5, 0.1])
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
    (found,) = estimates(values[:, None])
    error = 1.96 * values.std() / np.sqrt(len(values))
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - error, abs=0.002)
    assert found.high == pytest.approx(values.mean() + error, abs=0.002)


def test_columns_are_resampled_alike_and_by_their_seed() -> None:
    values = np.array([A, B, A]).T
    one, other, same = estimates(values, seed=4)
    assert one == same != other
    assert estimates(values, seed=4) == [one, other, same]
    assert estimates(values, seed=5)[0].low != one.low
