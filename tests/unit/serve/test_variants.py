"""What a request may change in the profile, and how what it may not is refused."""

from dataclasses import replace
from typing import Any

import pytest
from fakes.serving import scripted_graph
from pydantic import TypeAdapter

from rag_core.answering.pipeline import QueryPipeline
from rag_core.config import RetrievalSettings, Settings
from rag_core.errors import UsageError
from rag_core.retrieval.hybrid import Hybrid
from rag_core.retrieval.variants import FusedVariants
from rag_core.settings import load_settings
from rag_core.types import Query, Reply
from serve.variants import (
    AnswerOptions,
    SearchOptions,
    Variants,
    apply_answer_options,
    apply_search_options,
    ranking_depth,
)

HYBRID = {
    "type": "hybrid",
    "retrievers": {"dense": {"type": "dense"}, "bm25": {"type": "bm25"}, "splade": {"type": "splade"}},
    "fusion": {"type": "distribution", "weights": {"dense": 0.5, "bm25": 0.3, "splade": 0.2}},
    "timeouts_ms": {"splade": 50},
}
RERANKED = {"type": "reranked", "retriever": HYBRID, "reranker": {"type": "lexical"}}


def tree(settings: dict[str, Any]) -> RetrievalSettings:
    return TypeAdapter(RetrievalSettings).validate_python(settings)  # type: ignore[no-any-return]


def dump_variant(settings: dict[str, Any], **options: Any) -> dict[str, Any]:
    return apply_search_options(tree(settings), SearchOptions(**options)).model_dump()


def test_without_options_nothing_changes() -> None:
    assert apply_search_options(tree(RERANKED), SearchOptions()) == tree(RERANKED)


def test_strategies_are_the_legs_that_are_asked_with_what_belongs_to_them() -> None:
    variant = dump_variant(HYBRID, strategies=("bm25", "dense"))
    assert list(variant["retrievers"]) == ["dense", "bm25"]
    assert variant["fusion"]["weights"] == {"dense": 0.5, "bm25": 0.3}
    assert variant["timeouts_ms"] == {}


@pytest.mark.parametrize(
    ("method", "fusion"),
    [
        ("rrf", {"type": "rrf", "k": 60}),
        ("weighted", {"type": "weighted", "weights": {}, "alpha": None}),
        ("distribution", HYBRID["fusion"]),
    ],
)
def test_another_fusion_begins_with_equal_weights_and_the_profiles_own_keeps_its(
    method: Any, fusion: dict[str, Any]
) -> None:
    assert dump_variant(HYBRID, fusion_method=method)["fusion"] == fusion


def test_weights_take_the_place_of_the_profiles() -> None:
    variant = dump_variant(RERANKED, weights=(("bm25", 1.0),))
    assert variant["retriever"]["fusion"] == {"type": "distribution", "weights": {"bm25": 1.0}}


def test_alpha_of_two_becomes_the_weight_of_the_one_that_is_left() -> None:
    two = {name: leg for name, leg in HYBRID["retrievers"].items() if name != "splade"}  # type: ignore[attr-defined]
    halves = {**HYBRID, "retrievers": two, "fusion": {"type": "weighted", "alpha": 0.25}, "timeouts_ms": {}}
    assert dump_variant(halves, strategies=("bm25",))["fusion"]["weights"] == {"bm25": 0.75}


def test_learned_weights_stay_with_the_legs_that_are_asked() -> None:
    learned = {**HYBRID, "fusion": {"type": "ltr", "scores": {"dense": 1.0, "bm25": 2.0}, "ranks": {"splade": 3.0}}}
    variant = dump_variant(learned, fusion_method="ltr", strategies=("dense",))
    assert (variant["fusion"]["scores"], variant["fusion"]["ranks"]) == ({"dense": 1.0}, {})


def test_candidates_are_the_depth_of_all_that_choose() -> None:
    variant = dump_variant({"type": "signals", "retriever": RERANKED}, candidates=7)
    assert [variant["depth"], variant["retriever"]["depth"], variant["retriever"]["retriever"]["depth"]] == [7, 7, 7]


def test_without_its_reranker_a_profile_keeps_the_rest() -> None:
    assert apply_search_options(tree(RERANKED), SearchOptions(rerank=False)) == tree(HYBRID)
    assert apply_search_options(tree(RERANKED), SearchOptions(rerank=True)) == tree(RERANKED)
    assert apply_search_options(tree(HYBRID), SearchOptions(rerank=False)) == tree(HYBRID)


def test_chunks_of_a_document_are_limited_once() -> None:
    limited = dump_variant(HYBRID, max_chunks_per_document=2)
    assert (limited["type"], limited["max_chunks_per_document"], limited["depth"]) == ("per_document", 2, 100)
    again = dump_variant(limited, max_chunks_per_document=1, candidates=30)
    assert (again["max_chunks_per_document"], again["depth"], again["retriever"]["type"]) == (1, 30, "hybrid")


@pytest.mark.parametrize(
    ("settings", "options", "complaint"),
    [
        (
            HYBRID,
            {"strategies": ("graph",)},
            r"strategies must be legs of the profile \(dense, bm25, splade\), got graph",
        ),
        ({"type": "bm25"}, {"strategies": ("dense",)}, "strategies must be bm25, the profile's only leg, got dense"),
        ({"type": "bm25"}, {"fusion_method": "rrf"}, "fusion_method and weights must be omitted"),
        ({"type": "bm25"}, {"weights": (("bm25", 1.0),)}, "fusion_method and weights must be omitted"),
        ({"type": "bm25"}, {"candidates": 9}, "candidates must be omitted"),
        (HYBRID, {"rerank": True}, "the profile has no reranker"),
        (HYBRID, {"fusion_method": "ltr"}, "the profile has no learned weights"),
        (HYBRID, {"fusion_method": "rrf", "weights": (("bm25", 1.0),)}, "weighted or distribution, got rrf"),
        (
            HYBRID,
            {"strategies": ("dense",), "weights": (("bm25", 1.0),)},
            r"weights must name searched legs \(dense\), got bm25",
        ),
    ],
)
def test_an_option_for_a_part_that_the_profile_lacks_is_refused_by_its_name(
    settings: dict[str, Any], options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        dump_variant(settings, **options)


def test_a_ranking_is_as_deep_as_its_outermost_depth() -> None:
    assert ranking_depth(tree({**RERANKED, "depth": 20})) == 20
    assert ranking_depth(tree({"type": "dense"})) == 1000


def serving_settings(guard: str = "after") -> Settings:
    return load_settings(overrides=[f"guard.stream={guard}"], environment={})


def test_an_answer_can_have_fewer_passages_and_another_guard() -> None:
    settings = apply_answer_options(serving_settings(), AnswerOptions(top_k=2, guard="block"))
    assert (settings.packing.passages, settings.guard.mode) == (2, "block")
    assert (serving_settings().guard.on_judge_error, settings.guard.on_judge_error) == ("allow_flagged", "block")
    assert settings.pipeline_version != serving_settings().pipeline_version


def test_whole_answers_cannot_be_asked_of_a_profile_that_shows_sentences() -> None:
    with pytest.raises(UsageError, match="sentence by sentence"):
        apply_answer_options(serving_settings("sentence"), AnswerOptions(guard="regenerate"))


def test_a_variant_is_made_once_and_is_the_graphs_own_where_nothing_is_changed() -> None:
    graph = scripted_graph()
    variants = Variants(services=graph)
    assert variants.search_variant(SearchOptions()).retriever is graph.retriever
    lexical = SearchOptions(strategies=("bm25",))
    assert variants.search_variant(lexical) is variants.search_variant(lexical)
    retriever = variants.search_variant(lexical).retriever
    assert isinstance(retriever, FusedVariants)
    assert isinstance(retriever.retriever, Hybrid)
    assert list(retriever.retriever.legs) == ["bm25"]


def test_the_variants_that_were_not_used_for_longest_go_first() -> None:
    variants = Variants(services=scripted_graph())
    choices = [AnswerOptions(top_k=count) for count in range(1, 65)]
    first = [variants.answer_variant(choice) for choice in choices]
    assert variants.answer_variant(choices[0]) is first[0]
    variants.answer_variant(AnswerOptions(guard="off"))
    assert len(variants.answers) == 64
    assert variants.answer_variant(choices[0]) is first[0]
    assert variants.answer_variant(choices[1]) is not first[1]


def test_an_answer_variant_shares_what_the_graph_has() -> None:
    graph = scripted_graph()
    answerer = Variants(services=graph).answer_variant(AnswerOptions(guard="off")).answerer
    assert isinstance(answerer, QueryPipeline)
    assert isinstance(graph.answerer, QueryPipeline)
    assert answerer == replace(graph.answerer, guard=replace(graph.answerer.guard, mode="off"))


def test_a_users_own_pipeline_has_no_variants() -> None:
    class OwnAnswerer:
        async def answer(self, query: Query, tell: object = None) -> Reply:
            raise NotImplementedError

    variants = Variants(services=replace(scripted_graph(), answerer=OwnAnswerer()))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="must be omitted"):
        variants.answer_variant(AnswerOptions(top_k=1))
