from uuid import UUID

import numpy as np
import pytest

from jobs.train_fusion import find_hybrid, fit_coefficients, label_candidates, select_learnable
from rag_core.errors import ConfigError, DatasetError
from rag_core.evaluation.question import Question
from rag_core.retrieval.fusion import Candidates, fuse_ltr, merge_rankings
from rag_core.settings import load_settings

SPLADE = "splade={type: sentence_transformers, model: some/splade}"


def candidates(seed: int) -> tuple[Candidates, int]:
    """Thirty chunks: the dense leg scores the right one high, the other leg scores at random."""
    chance = np.random.default_rng(seed)
    right = int(chance.integers(30))
    dense = {UUID(int=n): float(chance.normal(3.0 if n == right else 0.0)) for n in range(30)}
    noise = {UUID(int=n): float(chance.normal()) for n in range(30)}
    rankings = {
        name: sorted(scores.items(), key=lambda pair: -pair[1]) for name, scores in (("dense", dense), ("noise", noise))
    }
    return merge_rankings(rankings), right


def test_the_leg_that_knows_gets_the_weight_and_the_trained_fusion_ranks_by_it() -> None:
    questions = [candidates(seed) for seed in range(100)]
    labels = [np.array([id.int == right for id in merged.ids]) for merged, right in questions]
    learned = fit_coefficients(select_learnable([merged for merged, _ in questions], labels))
    assert learned["scores"]["dense"] > 1
    assert abs(learned["scores"]["noise"]) < 0.5
    unseen = [candidates(seed) for seed in range(1_000, 1_040)]
    best = [
        fuse_ltr(merged, learned["intercept"], learned["scores"], learned["ranks"])[0][0].int for merged, _ in unseen
    ]
    assert sum(first == right for first, (_, right) in zip(best, unseen, strict=True)) >= 20


def test_a_chunk_is_relevant_with_its_document() -> None:
    merged = merge_rankings({"dense": [(UUID(int=n), 1.0 - n / 10) for n in range(3)]})
    documents = {UUID(int=0): "a", UUID(int=1): "b", UUID(int=2): "a"}
    (labels,) = label_candidates([Question(id="q", text="?", grades={"a": 2, "b": 0})], [merged], documents)
    assert labels.tolist() == [True, False, True]


def test_without_a_relevant_chunk_there_is_nothing_to_learn() -> None:
    merged, _ = candidates(1)
    with pytest.raises(DatasetError, match="no question has relevant chunks and others"):
        fit_coefficients(select_learnable([merged], [np.zeros(30, bool)]))


def test_questions_count_of_which_every_leg_answered_and_that_have_right_and_wrong_chunks() -> None:
    merged, right = candidates(1)
    alone = merge_rankings({"dense": [(id, 1.0) for id in merged.ids]})
    labels = np.array([id.int == right for id in merged.ids])
    nothing, everything = np.zeros(30, bool), np.ones(30, bool)
    learnable = select_learnable([merged, merged, merged, alone], [labels, nothing, everything, labels])
    assert [candidates.legs for candidates, _ in learnable] == [("dense", "noise")]


@pytest.mark.parametrize("profile", ["default", "gpu", "clinicaltrials", "dailymed"])
def test_the_hybrid_is_found_within_the_retrievers_around_it(profile: str) -> None:
    around = "retrieval={{type: per_document, max_chunks_per_document: 1, retriever: {{type: signals, retriever: {}}}}}"
    hybrid = find_hybrid(load_settings(None, profile, [], {}).retrieval)
    wrapped = load_settings(None, "default", [around.format(hybrid.model_dump_json()), SPLADE], {}).retrieval
    assert find_hybrid(wrapped) == hybrid


def test_without_a_hybrid_there_is_no_fusion_to_train() -> None:
    settings = load_settings(None, "default", ["retrieval={type: signals, retriever: {type: dense}}"], {})
    with pytest.raises(ConfigError, match="of type hybrid, got dense"):
        find_hybrid(settings.retrieval)
