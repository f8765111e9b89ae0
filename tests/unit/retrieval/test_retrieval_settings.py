"""What the settings of retrieval may say, and which profile has which."""

import pytest

from rag_core.config import BertSplade, HybridRetriever, RerankedRetriever, WeightedFusion
from rag_core.errors import ConfigError
from rag_core.settings import load_settings
from rag_core.wiring.retrieval import build_fusion


def retrieval(*overrides: str, profile: str = "default"):  # type: ignore[no-untyped-def]
    return load_settings(None, profile, overrides, {}).retrieval


def error_message(*overrides: str) -> str:
    with pytest.raises(ConfigError) as raised:
        retrieval(*overrides)
    return str(raised.value)


def test_the_default_fuses_dense_and_bm25_with_equal_weights() -> None:
    retriever = retrieval()
    assert isinstance(retriever, HybridRetriever)
    assert {name: leg.type for name, leg in retriever.retrievers.items()} == {"dense": "dense", "bm25": "bm25"}
    assert (retriever.fusion.type, retriever.fusion.weights, retriever.depth) == (
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
def test_a_profile_reranks_the_hits_of_a_hybrid(profile: str, reranker: str) -> None:
    retriever = retrieval(profile=profile)
    assert isinstance(retriever, RerankedRetriever)
    assert (retriever.reranker.type, retriever.retriever.type) == (reranker, "hybrid")


def test_a_weight_for_an_unknown_retriever_is_rejected_by_name() -> None:
    assert "fusion.weights must name retrievers (dense, bm25), got splade" in error_message(
        "retrieval.fusion.weights.splade=1"
    )
    assert "timeouts_ms must name retrievers (dense, bm25), got graph" in error_message("retrieval.timeouts_ms.graph=5")


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
def test_a_splade_retriever_needs_term_weights_at_any_depth(tree: str) -> None:
    assert error_message(tree).startswith("splade: a splade retriever requires this section: set it to {type: ")
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
def test_a_graph_retriever_needs_a_graph_at_any_depth(tree: str) -> None:
    assert error_message(tree).startswith("graph: a graph retriever requires this section: set it to {type: rules}")
    assert load_settings(None, "default", [tree, "graph.type=rules"], {}).graph is not None


def test_term_weights_can_be_computed_without_a_splade_retriever() -> None:
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
def test_the_legs_and_weights_of_a_profile(profile: str, legs: set[str], weights: dict[str, float]) -> None:
    retriever = retrieval(profile=profile)
    assert set(retriever.retriever.retrievers) == legs
    assert retriever.retriever.fusion.weights == weights
    assert (load_settings(None, profile, (), {}).splade is not None) == ("splade" in legs)


def test_the_profile_splade_adds_a_leg_to_the_default() -> None:
    settings = load_settings(None, "splade", (), {})
    assert settings.splade == BertSplade(type="bert", model="splade-tiny")
    assert settings.embedding == load_settings(None, "default", (), {}).embedding
    assert set(settings.retrieval.retrievers) == {*retrieval().retrievers, "splade"}
    assert settings.retrieval.fusion.weights == {"dense": 0.5, "bm25": 0.25, "splade": 0.25}


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        ("retrieval.fusion.weights.dense=-1", "greater than or equal to 0"),
        ("retrieval.fusion={type: weighted, weights: {dense: -1}}", "greater than or equal to 0"),
        ("retrieval.fusion={type: ltr, intercept: .nan}", "finite number"),
        ("retrieval={type: signals, retriever: {type: dense}, recency: {half_life_days: 1, weight: .inf}}", "finite"),
    ],
)
def test_factors_must_be_finite_and_fusion_weights_not_negative(setting: str, rule: str) -> None:
    assert rule in error_message(setting)


def test_alpha_is_the_weight_of_the_first_of_two_legs() -> None:
    retriever = retrieval("retrieval.fusion={type: weighted, alpha: 0.7}")
    assert isinstance(retriever.fusion, WeightedFusion)
    weights = build_fusion(retriever.fusion, list(retriever.retrievers)).keywords["weights"]  # type: ignore[attr-defined]
    assert weights == pytest.approx({"dense": 0.7, "bm25": 0.3})


def test_alpha_is_rejected_for_three_legs_and_together_with_weights() -> None:
    third = "retrieval.retrievers.title={type: bm25}"
    assert "fusion.alpha requires exactly two retrievers, got 3" in error_message(
        "retrieval.fusion={type: weighted, alpha: 0.7}", third
    )
    both = "retrieval.fusion={type: weighted, alpha: 0.7, weights: {dense: 1}}"
    assert "set alpha or weights, not both" in error_message(both)


def test_an_error_names_the_full_path_of_a_setting() -> None:
    assert error_message("retrieval.retrievers.bm25.b=2").startswith("retrieval.retrievers.bm25.b: ")


def test_weights_for_a_boolean_are_written_as_in_yaml() -> None:
    retriever = retrieval("retrieval={type: signals, retriever: {type: dense}, weights: {approved: {true: 0.5}}}")
    assert retriever.weights == {"approved": {"true": 0.5}}


def test_retrievers_can_be_nested_to_any_depth() -> None:
    retriever = retrieval(
        "retrieval={type: per_document, max_chunks_per_document: 2, retriever: {type: signals, "
        "recency: {half_life_days: 30, weight: 0.5}, retriever: {type: reranked, reranker: {type: lexical}, "
        "retriever: {type: dense}}}}"
    )
    assert retriever.retriever.retriever.retriever.type == "dense"
