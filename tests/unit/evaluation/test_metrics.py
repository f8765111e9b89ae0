"""The measures against the values that trec_eval itself prints, and against trec_eval as a library."""

import random
from collections.abc import Mapping
from math import log2
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from rag_core.evaluation.dataset import read_qrels, read_run
from rag_core.evaluation.metrics import (
    average_precision,
    f1,
    ideal_ranking,
    measures,
    ndcg,
    precision,
    rank_ids,
    recall,
    reciprocal_rank,
    success,
    unique_ids,
)

FIXTURE = Path(__file__).parents[2] / "data" / "trec_eval"
PRINTED = {
    "map": 0.1785,
    "mrr": 0.4064,
    "ndcg@1000": 0.4021,
    "ndcg@5": 0.2768,
    "ndcg@10": 0.3016,
    "ndcg@20": 0.3525,
    "ndcg@100": 0.3916,
    "precision@5": 0.2667,
    "precision@10": 0.3000,
    "precision@100": 0.2467,
    "recall@10": 0.0317,
    "recall@100": 0.4980,
    "recall@1000": 0.5997,
    "success@10": 0.6667,
    "f1@500": 0.1194,
}
"""Values of trec_eval 9 for the three topics of its own test. `f1@500` is its set_F: each topic has 500 documents."""
PRINTED_BY_TOPIC = {
    "map": (0.0324, 0.4175, 0.0858),
    "ndcg@10": (0.1518, 0.7530, 0.0),
    "mrr": (0.1667, 1.0, 0.0526),
}
CUTS = (1, 3, 5, 10, 100)
THEIRS = {
    "map": "map",
    "mrr": "recip_rank",
    **{f"ndcg@{k}": f"ndcg_cut_{k}" for k in CUTS},
    **{f"recall@{k}": f"recall_{k}" for k in CUTS},
    **{f"precision@{k}": f"P_{k}" for k in CUTS},
    **{f"success@{k}": f"success_{k}" for k in CUTS},
}
ASKED = {
    "map",
    "recip_rank",
    *(f"{name}.{','.join(map(str, CUTS))}" for name in ("ndcg_cut", "recall", "P", "success")),
}


def random_question(chance: random.Random) -> tuple[dict[str, int], dict[str, float]]:
    """Grades from -1 to 3, and few different scores, so that most are tied."""
    documents = [f"{chance.choice('abAZ')}{n}" for n in range(chance.randint(2, 60))]
    grades = {id: chance.randint(-1, 3) for id in documents if chance.random() < 0.5}
    scores = {id: float(np.float32(chance.randint(0, 4) / 3)) for id in documents if chance.random() < 0.7}
    return grades | {"never found": 1}, scores or {documents[0]: 1.0}


def test_graded_runs_full_of_ties_measure_as_trec_eval_measures_them() -> None:
    chance = random.Random(5)
    questions = {str(n): random_question(chance) for n in range(300)}
    oracle = pytrec_eval.RelevanceEvaluator({id: grades for id, (grades, _) in questions.items()}, ASKED)
    expected: Mapping[str, Mapping[str, float]] = oracle.evaluate({id: scores for id, (_, scores) in questions.items()})
    for id, (grades, scores) in questions.items():
        measured = measures(rank_ids(scores), grades, CUTS)
        for name, theirs in THEIRS.items():
            assert measured[name] == pytest.approx(expected[id][theirs], abs=1e-9), (id, name)


def test_trec_evals_own_test_measures_as_trec_eval_prints_it() -> None:
    qrels, run = read_qrels(FIXTURE / "qrels.test"), read_run(FIXTURE / "results.test")
    topics = [measures(rank_ids(run[id]), qrels[id], (5, 10, 20, 100, 500, 1000)) for id in ("301", "302", "303")]
    assert {name: round(sum(topic[name] for topic in topics) / 3, 4) for name in PRINTED} == PRINTED
    for name, printed in PRINTED_BY_TOPIC.items():
        assert tuple(round(topic[name], 4) for topic in topics) == printed
    cut = [average_precision(rank_ids(run[id]), qrels[id], 100) for id in run]
    assert round(sum(cut) / 3, 4) == 0.1622


def test_a_tie_goes_to_the_greater_id_and_single_precision_decides_what_is_a_tie() -> None:
    assert rank_ids({"a": 1.0, "b": 1.0, "c": 2.0}) == ["c", "b", "a"]
    assert rank_ids({"a": 1.0 + 1e-12, "b": 1.0}) == ["b", "a"]


def test_the_gain_is_the_grade_and_not_a_power_of_two() -> None:
    assert ndcg(["a", "b"], {"a": 1, "b": 3}, 10) == pytest.approx((1 + 3 / log2(3)) / (3 + 1 / log2(3)))


def test_recall_counts_all_relevant_ones_and_precision_all_k() -> None:
    grades = {"a": 1, "b": 2, "c": 0, "d": -1, "e": 1}
    ranking = ["c", "a", "d"]
    assert (recall(ranking, grades, 2), precision(ranking, grades, 10), success(ranking, grades, 1)) == (1 / 3, 0.1, 0)
    assert f1(ranking, grades, 10) == pytest.approx(2 * 0.1 * (1 / 3) / (0.1 + 1 / 3))


def test_the_reciprocal_rank_at_k_ignores_later_documents() -> None:
    ranking = ["x", "y", "a"]
    assert (reciprocal_rank(ranking, {"a": 1}), reciprocal_rank(ranking, {"a": 1}, 2)) == (1 / 3, 0)


def test_the_average_precision_is_over_what_was_not_found_too() -> None:
    assert average_precision(["a", "x", "b"], {"a": 1, "b": 1, "c": 1, "d": 1}) == pytest.approx((1 + 2 / 3) / 4)


def test_a_question_without_hits_or_without_relevant_documents_measures_zero() -> None:
    assert set(measures([], {"a": 1}).values()) == {0.0}
    assert set(measures(["a"], {"a": 0}).values()) == {0.0}


def test_documents_have_the_ranks_of_their_best_chunks() -> None:
    assert unique_ids(["b", "a", "b", "c", "a"]) == ["b", "a", "c"]


def test_the_oracle_puts_the_best_grades_first_and_keeps_the_order_of_the_rest() -> None:
    assert ideal_ranking(["x", "b", "y", "a", "b"], {"a": 3, "b": 1, "y": -1}) == ["a", "b", "x", "y"]
