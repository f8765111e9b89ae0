"""Fusion and aggregation of Hyper-KB, by the formulas of its documents."""

from typing import Any

import pytest
from pydantic import ValidationError

from rag_core.hyperkb import AggregationStrategy, HybridFusion, SparseRetriever
from rag_core.text.token_counts import EstimatedTokens

SPARSE = [{"id": "b", "score": 8.0}, {"id": "a", "score": 4.0}, {"id": "d", "score": 2.0}]
DENSE = [{"id": "a", "score": 0.9}, {"id": "b", "score": 0.3}, {"id": "d", "score": 0.0}]


def scores(fusion: HybridFusion) -> dict[str, float]:
    return {result["id"]: round(result["score"], 4) for result in fusion.fuse(SPARSE, DENSE, 10)}


def test_the_default_is_reciprocal_rank_fusion_with_60() -> None:
    fused = HybridFusion().fuse(SPARSE[:1], DENSE[:2], top_k=5)
    assert fused == [
        {"id": "b", "score": 1 / 61 + 1 / 62, "sources": ["sparse", "dense"]},
        {"id": "a", "score": 1 / 61, "sources": ["dense"]},
    ]


def test_alpha_weighs_the_sparse_scores_with_and_without_scaling() -> None:
    scaled = {"a": round(0.25 / 3 + 0.75, 4), "b": round(0.25 + 0.75 / 3, 4), "d": 0.0}
    assert scores(HybridFusion("weighted", alpha=0.25)) == scaled
    assert scores(HybridFusion("weighted", alpha=0.25, normalize=False)) == {"b": 2.225, "a": 1.675, "d": 0.5}


def test_a_distribution_is_a_sum_of_z_scores() -> None:
    assert scores(HybridFusion("distribution", alpha=1.0)) == {"b": 1.3363, "a": -0.2673, "d": -1.069}


@pytest.mark.parametrize("arguments", [{"method": "borda"}, {"alpha": 1.5}, {"k": -1}])
def test_a_fusion_that_breaks_a_rule_names_the_field(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(arguments))):
        HybridFusion(**arguments)


def test_bm25_has_the_defaults_of_the_documents() -> None:
    retriever = SparseRetriever()
    assert (retriever.k1, retriever.b) == (1.5, 0.75)


def result(id: str, content: str, score: float, **metadata: Any) -> dict[str, Any]:
    return {"id": id, "content": content, "score": score, "metadata": metadata}


RESULTS = [
    result("a", "Keys are rotated.", 0.9, timestamp="2026-11-01T10:00:00"),
    result("b", "Gates are opened.", 0.7, timestamp="2026-11-03T10:00:00", query="when?"),
    result("c", "Doors are painted.", 0.1, timestamp="2026-11-02T10:00:00", query="who?"),
]


def test_results_are_concatenated() -> None:
    text = AggregationStrategy().aggregate(RESULTS, 100)
    assert text == "Keys are rotated.\n\nGates are opened.\n\nDoors are painted."


def test_weighted_results_begin_with_their_relevance() -> None:
    assert AggregationStrategy("weighted").aggregate(RESULTS, 100).split("\n\n") == [
        "[HIGHLY RELEVANT] Keys are rotated.",
        "[RELEVANT] Gates are opened.",
        "[POTENTIALLY RELEVANT] Doors are painted.",
    ]


def test_recent_turns_come_first_with_their_query() -> None:
    lines = AggregationStrategy("recency").aggregate(RESULTS, 100).split("\n\n")
    assert lines[:2] == [
        "[1 turns ago] Query: when? Answer: Gates are opened.",
        "[2 turns ago] Query: who? Answer: Doors are painted.",
    ]
    assert lines[2].endswith(" ago] Keys are rotated.") or lines[2].startswith("[today]")


def test_a_template_is_filled_in() -> None:
    results = [result("a", "Keys are rotated.", 1.0, source="keys.md")]
    assert AggregationStrategy("template", "From {uri}: {text}").aggregate(results) == "From keys.md: Keys are rotated."


@pytest.mark.parametrize("max_tokens", [3, 8, 15, 25, 60])
def test_the_text_has_at_most_so_many_tokens(max_tokens: int) -> None:
    for strategy in ("concatenate", "weighted", "recency"):
        text = AggregationStrategy(strategy).aggregate(RESULTS, max_tokens)
        assert EstimatedTokens().lengths([text])[0] <= max_tokens


def test_without_results_the_text_is_empty() -> None:
    assert AggregationStrategy().aggregate([]) == ""
