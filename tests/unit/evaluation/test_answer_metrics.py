import numpy as np
import pytest

from rag_core.evaluation.answers import (
    Agreement,
    auroc,
    auroc_estimate,
    calibration_error,
    sentence_agreement,
    sentence_recall,
    share_estimate,
    token_f1,
)


def test_a_sentence_is_recalled_if_one_of_the_first_k_is_gold() -> None:
    assert [sentence_recall([False, True, True], k) for k in (1, 2, 3)] == [0.0, 1.0, 1.0]
    assert sentence_recall([], 3) == 0.0


def test_token_f1_reads_as_squad_does_and_takes_the_best_reference() -> None:
    assert token_f1("The Eiffel Tower.", ["eiffel tower"]) == 1.0
    # two words in common, of three and of four
    assert token_f1("red green blue", ["red green, white black"]) == pytest.approx(2 * 2 / 7)
    assert token_f1("red red", ["red"]) == pytest.approx(2 / 3)
    assert token_f1("red", ["blue", "red", "green"]) == 1.0
    assert token_f1("", ["red"]) == token_f1("red", []) == 0.0
    assert token_f1("the", ["a"]) == 1.0


def test_sentences_agree_by_precision_and_recall() -> None:
    assert sentence_agreement({"a", "b", "c"}, {"b", "c", "d", "e"}) == Agreement(precision=2 / 3, recall=1 / 2)
    assert sentence_agreement(set(), {"a"}) == Agreement(precision=0.0, recall=0.0)


def test_auroc_counts_pairs_and_half_of_the_ties() -> None:
    assert auroc([3, 2], [1, 0]) == 1.0
    assert auroc([1], [1]) == 0.5
    # 3 beats all three; 1 beats 0, ties with 1, loses against 2
    assert auroc([3, 1], [0, 1, 2]) == pytest.approx((3 + 1.5) / 6)


def test_auroc_is_the_share_of_all_pairs() -> None:
    chance = np.random.default_rng(1)
    positive, negative = chance.integers(0, 9, 40).tolist(), chance.integers(0, 7, 30).tolist()
    pairs = [float(np.sign(one - other)) / 2 + 0.5 for one in positive for other in negative]
    assert auroc(positive, negative) == pytest.approx(sum(pairs) / len(pairs))


def test_the_interval_of_an_auroc_is_that_of_the_normal_distribution_for_many_questions() -> None:
    chance = np.random.default_rng(2)
    positive, negative = chance.normal(1, 1, 300).tolist(), chance.normal(0, 1, 300).tolist()
    estimate = auroc_estimate(positive, negative)
    # Hanley and McNeil 1982, equations 1 and 2
    area, n = estimate.mean, 300
    first, second = area / (2 - area), 2 * area * area / (1 + area)
    error = ((area * (1 - area) + (n - 1) * (first - area**2) + (n - 1) * (second - area**2)) / n**2) ** 0.5
    assert estimate.low == pytest.approx(area - 1.96 * error, abs=0.006)
    assert estimate.high == pytest.approx(area + 1.96 * error, abs=0.006)
    assert estimate == auroc_estimate(positive, negative)


def test_the_calibration_error_is_the_mean_distance_of_confidence_and_accuracy_over_bins() -> None:
    assert calibration_error([0.25, 0.75, 0.25, 0.75], [0, 1, 0, 1], bins=2) == 0.25
    assert calibration_error([0.5] * 4, [0, 1, 0, 1], bins=1) == 0.0
    assert calibration_error([1.0], [0]) == 1.0


def test_a_share_has_wilsons_interval() -> None:
    some = share_estimate(8, 10)
    assert (some.mean, some.low, some.high) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-4)
    none, all_ = share_estimate(0, 20), share_estimate(20, 20)
    assert (none.low, all_.high) == pytest.approx((0.0, 1.0), abs=1e-9)
    assert none.high == pytest.approx(0.1611, abs=1e-4)
