"""What the settings of retrieval may say, and which profile has which."""

import pytest

from rag_core.config import HybridRetriever, RerankedRetriever, WeightedFusion
from rag_core.errors import ConfigError
from rag_core.settings import load_settings
from rag_core.wiring.retrieval import build_fusion


def retrieval(*overrides: str, profile: str = "default"):  # type: ignore[no-untyped-def]
    return load_settings(None, profile, overrides, {}).retrieval


def complaint(*overrides: str) -> str:
    with pytest.raises(ConfigError) as raised:
        retrieval(*overrides)
    return str(raised.value)


def test_the_default_fuses_vectors_and_words_in_equal_parts() -> None:
    chosen = retrieval()
    assert isinstance(chosen, HybridRetriever)
    assert {name: leg.type for name, leg in chosen.retrievers.items()} == {"dense": "dense", "bm25": "bm25"}
    assert (chosen.fusion.type, chosen.fusion.weights, chosen.depth) == (
        "distribution",
        {"dense": 0.5, "bm25": 0.5},
        100,
    )


@pytest.mark.parametrize(
    ("profile", "reranker"),
    [
        ("gpu", "cross_encoder"),
        ("pmc", "cross_encoder"),
        ("dailymed", "lexical"),
        ("clinicaltrials", "late_interaction"),
    ],
)
def test_a_profile_has_its_reranker_behind_a_hybrid(profile: str, reranker: str) -> None:
    chosen = retrieval(profile=profile)
    assert isinstance(chosen, RerankedRetriever)
    assert (chosen.reranker.type, chosen.retriever.type) == (reranker, "hybrid")


def test_a_weight_of_no_retriever_is_refused_by_name() -> None:
    assert "fusion.weights must name retrievers (dense, bm25), got splade" in complaint(
        "retrieval.fusion.weights.splade=1"
    )
    assert "timeouts_ms must name retrievers (dense, bm25), got graph" in complaint("retrieval.timeouts_ms.graph=5")


SPLADE = "splade={type: sentence_transformers, model: some/splade}"


@pytest.mark.parametrize(
    "tree",
    [
        "retrieval={type: splade}",
        "retrieval.retrievers.learned={type: splade}",
        "retrieval={type: per_document, max_chunks_per_document: 1, retriever: {type: signals, retriever: "
        "{type: reranked, reranker: {type: lexical}, retriever: {type: splade}}}}",
    ],
)
def test_a_splade_retriever_needs_weights_wherever_it_stands(tree: str) -> None:
    assert complaint(tree).startswith(
        "splade: Value error, a splade retriever requires this section: set it to {type: "
    )
    assert load_settings(None, "default", [tree, SPLADE], {}).splade is not None


@pytest.mark.parametrize(
    "tree",
    [
        "retrieval={type: graph}",
        "retrieval.retrievers.related={type: graph}",
        "retrieval={type: per_document, max_chunks_per_document: 1, retriever: {type: signals, retriever: "
        "{type: reranked, reranker: {type: lexical}, retriever: {type: graph}}}}",
    ],
)
def test_a_graph_retriever_needs_a_graph_wherever_it_stands(tree: str) -> None:
    assert complaint(tree).startswith(
        "graph: Value error, a graph retriever requires this section: set it to {type: rules}"
    )
    assert load_settings(None, "default", [tree, "graph.type=rules"], {}).graph is not None


def test_weights_may_be_made_without_a_retriever_of_theirs() -> None:
    assert load_settings(None, "default", [SPLADE], {}).splade is not None
    assert load_settings(None, "default", [], {}).splade is None


@pytest.mark.parametrize(
    ("profile", "legs", "weights"),
    [
        ("gpu", {"dense", "bm25"}, {"dense": 0.5, "bm25": 0.5}),
        ("pmc", {"dense", "splade"}, {"dense": 0.5, "splade": 0.5}),
        ("dailymed", {"dense", "bm25"}, {"dense": 0.5, "bm25": 0.5}),
        ("clinicaltrials", {"dense", "bm25", "splade"}, {}),
    ],
)
def test_a_profile_has_its_legs(profile: str, legs: set[str], weights: dict[str, float]) -> None:
    chosen = retrieval(profile=profile)
    assert set(chosen.retriever.retrievers) == legs
    assert chosen.retriever.fusion.weights == weights
    assert (load_settings(None, profile, (), {}).splade is not None) == ("splade" in legs)


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        ("retrieval.fusion.weights.dense=-1", "greater than or equal to 0"),
        ("retrieval.fusion={type: weighted, weights: {dense: -1}}", "greater than or equal to 0"),
        ("retrieval.fusion={type: ltr, intercept: .nan}", "finite number"),
        ("retrieval={type: signals, retriever: {type: dense}, recency: {half_life_days: 1, weight: .inf}}", "finite"),
    ],
)
def test_what_scores_are_multiplied_by_is_finite_and_no_weight_of_fusion_is_negative(setting: str, rule: str) -> None:
    assert rule in complaint(setting)


def test_alpha_is_the_weight_of_the_first_of_two() -> None:
    chosen = retrieval("retrieval.fusion={type: weighted, alpha: 0.7}")
    assert isinstance(chosen.fusion, WeightedFusion)
    weights = build_fusion(chosen.fusion, list(chosen.retrievers)).keywords["weights"]  # type: ignore[attr-defined]
    assert weights == pytest.approx({"dense": 0.7, "bm25": 0.3})


def test_alpha_of_three_or_beside_weights_is_refused() -> None:
    third = "retrieval.retrievers.title={type: bm25}"
    assert "fusion.alpha requires exactly two retrievers, got 3" in complaint(
        "retrieval.fusion={type: weighted, alpha: 0.7}", third
    )
    both = "retrieval.fusion={type: weighted, alpha: 0.7, weights: {dense: 1}}"
    assert "set alpha or weights, not both" in complaint(both)


def test_a_complaint_names_a_setting_as_it_is_set_however_deep() -> None:
    assert complaint("retrieval.retrievers.bm25.b=2").startswith("retrieval.retrievers.bm25.b: ")


def test_weights_by_a_boolean_are_spelled_as_in_yaml() -> None:
    chosen = retrieval("retrieval={type: signals, retriever: {type: dense}, weights: {approved: {true: 0.5}}}")
    assert chosen.weights == {"approved": {"true": 0.5}}


def test_retrievers_are_nested_as_deep_as_one_likes() -> None:
    chosen = retrieval(
        "retrieval={type: per_document, max_chunks_per_document: 2, retriever: {type: signals, "
        "recency: {half_life_days: 30, weight: 0.5}, retriever: {type: reranked, reranker: {type: lexical}, "
        "retriever: {type: dense}}}}"
    )
    assert chosen.retriever.retriever.retriever.type == "dense"
