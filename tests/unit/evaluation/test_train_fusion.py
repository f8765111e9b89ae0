from uuid import UUID

import numpy as np
import pytest

from jobs.train_fusion import fitted, relevant_chunks
from rag_core.errors import DatasetError
from rag_core.evaluation.dataset import Question
from rag_core.retrieval.fusion import Candidates, ltr, union


def candidates(seed: int) -> tuple[Candidates, int]:
    """Thirty chunks: the dense leg scores the right one high, the other leg scores at random."""
    chance = np.random.default_rng(seed)
    right = int(chance.integers(30))
    dense = {UUID(int=n): float(chance.normal(3.0 if n == right else 0.0)) for n in range(30)}
    noise = {UUID(int=n): float(chance.normal()) for n in range(30)}
    rankings = {
        name: sorted(scores.items(), key=lambda pair: -pair[1]) for name, scores in (("dense", dense), ("noise", noise))
    }
    return union(rankings), right


def test_the_leg_that_knows_gets_the_weight_and_the_trained_fusion_ranks_by_it() -> None:
    questions = [candidates(seed) for seed in range(100)]
    labels = [np.array([id.int == right for id in found.ids]) for found, right in questions]
    learned = fitted([found for found, _ in questions], labels)
    assert learned["scores"]["dense"] > 1
    assert abs(learned["scores"]["noise"]) < 0.5
    unseen = [candidates(seed) for seed in range(1_000, 1_040)]
    best = [ltr(found, learned["intercept"], learned["scores"], learned["ranks"])[0][0].int for found, _ in unseen]
    assert sum(first == right for first, (_, right) in zip(best, unseen, strict=True)) >= 20


def test_a_chunk_is_relevant_with_its_document() -> None:
    found = union({"dense": [(UUID(int=n), 1.0 - n / 10) for n in range(3)]})
    documents = {UUID(int=0): "a", UUID(int=1): "b", UUID(int=2): "a"}
    (labels,) = relevant_chunks([Question(id="q", text="?", grades={"a": 2, "b": 0})], [found], documents)
    assert labels.tolist() == [True, False, True]


def test_without_a_relevant_chunk_there_is_nothing_to_learn() -> None:
    found, _ = candidates(1)
    with pytest.raises(DatasetError, match="no question has relevant chunks"):
        fitted([found], [np.zeros(30, bool)])
