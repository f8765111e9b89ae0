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


def dumped(settings: dict[str, Any], **options: Any) -> dict[str, Any]:
    return apply_search_options(tree(settings), SearchOptions(**options)).model_dump()


def test_without_options_nothing_changes() -> None:
    assert apply_search_options(tree(RERANKED), SearchOptions()) == tree(RERANKED)


def test_strategies_are_the_legs_that_are_asked_with_what_belongs_to_them() -> None:
    chosen = dumped(HYBRID, strategies=("bm25", "dense"))
    assert list(chosen["retrievers"]) == ["dense", "bm25"]
    assert chosen["fusion"]["weights"] == {"dense": 0.5, "bm25": 0.3}
    assert chosen["timeouts_ms"] == {}


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
    assert dumped(HYBRID, fusion_method=method)["fusion"] == fusion


def test_weights_take_the_place_of_the_profiles() -> None:
    chosen = dumped(RERANKED, weights=(("bm25", 1.0),))
    assert chosen["retriever"]["fusion"] == {"type": "distribution", "weights": {"bm25": 1.0}}


def test_alpha_of_two_becomes_the_weight_of_the_one_that_is_left() -> None:
    two = {name: leg for name, leg in HYBRID["retrievers"].items() if name != "splade"}  # type: ignore[attr-defined]
    halves = {**HYBRID, "retrievers": two, "fusion": {"type": "weighted", "alpha": 0.25}, "timeouts_ms": {}}
    assert dumped(halves, strategies=("bm25",))["fusion"]["weights"] == {"bm25": 0.75}


def test_learned_weights_stay_with_the_legs_that_are_asked() -> None:
    learned = {**HYBRID, "fusion": {"type": "ltr", "scores": {"dense": 1.0, "bm25": 2.0}, "ranks": {"splade": 3.0}}}
    chosen = dumped(learned, fusion_method="ltr", strategies=("dense",))
    assert (chosen["fusion"]["scores"], chosen["fusion"]["ranks"]) == ({"dense": 1.0}, {})


def test_candidates_are_the_depth_of_all_that_choose() -> None:
    chosen = dumped({"type": "signals", "retriever": RERANKED}, candidates=7)
    assert [chosen["depth"], chosen["retriever"]["depth"], chosen["retriever"]["retriever"]["depth"]] == [7, 7, 7]


def test_without_its_reranker_a_profile_keeps_the_rest() -> None:
    assert apply_search_options(tree(RERANKED), SearchOptions(rerank=False)) == tree(HYBRID)
    assert apply_search_options(tree(RERANKED), SearchOptions(rerank=True)) == tree(RERANKED)
    assert apply_search_options(tree(HYBRID), SearchOptions(rerank=False)) == tree(HYBRID)


def test_chunks_of_a_document_are_limited_once() -> None:
    limited = dumped(HYBRID, max_chunks_per_document=2)
    assert (limited["type"], limited["max_chunks_per_document"], limited["depth"]) == ("per_document", 2, 100)
    again = dumped(limited, max_chunks_per_document=1, candidates=30)
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
def test_what_the_profile_does_not_have_is_refused_by_its_name(
    settings: dict[str, Any], options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        dumped(settings, **options)


def test_how_far_a_ranking_is_one_is_its_outermost_depth() -> None:
    assert ranking_depth(tree({**RERANKED, "depth": 20})) == 20
    assert ranking_depth(tree({"type": "dense"})) == 1000


def served(guard: str = "after") -> Settings:
    return load_settings(overrides=[f"guard.stream={guard}"], environment={})


def test_an_answer_may_be_of_fewer_passages_and_under_another_guard() -> None:
    chosen = apply_answer_options(served(), AnswerOptions(top_k=2, guard="block"))
    assert (chosen.packing.passages, chosen.guard.mode) == (2, "block")
    assert (served().guard.on_judge_error, chosen.guard.on_judge_error) == ("allow_flagged", "block")
    assert chosen.pipeline_version != served().pipeline_version


def test_whole_answers_cannot_be_asked_of_a_profile_that_shows_sentences() -> None:
    with pytest.raises(UsageError, match="sentence by sentence"):
        apply_answer_options(served("sentence"), AnswerOptions(guard="regenerate"))


def test_a_variant_is_made_once_and_is_the_graphs_own_where_nothing_is_changed() -> None:
    graph = scripted_graph()
    held = Variants(services=graph)
    assert held.search_variant(SearchOptions()).retriever is graph.retriever
    lexical = SearchOptions(strategies=("bm25",))
    assert held.search_variant(lexical) is held.search_variant(lexical)
    found = held.search_variant(lexical).retriever
    assert isinstance(found, FusedVariants)
    assert isinstance(found.retriever, Hybrid)
    assert list(found.retriever.legs) == ["bm25"]


def test_the_variants_that_were_not_used_for_longest_go_first() -> None:
    held = Variants(services=scripted_graph())
    asked = [AnswerOptions(top_k=count) for count in range(1, 65)]
    first = [held.answer_variant(each) for each in asked]
    assert held.answer_variant(asked[0]) is first[0]
    held.answer_variant(AnswerOptions(guard="off"))
    assert len(held.answers) == 64
    assert held.answer_variant(asked[0]) is first[0]
    assert held.answer_variant(asked[1]) is not first[1]


def test_an_answer_variant_shares_what_the_graph_has() -> None:
    graph = scripted_graph()
    chosen = Variants(services=graph).answer_variant(AnswerOptions(guard="off")).answerer
    assert isinstance(chosen, QueryPipeline)
    assert isinstance(graph.answerer, QueryPipeline)
    assert chosen == replace(graph.answerer, guard=replace(graph.answerer.guard, mode="off"))


def test_a_pipeline_of_ones_own_is_not_varied() -> None:
    class Own:
        async def answer(self, query: Query, tell: object = None) -> Reply:
            raise NotImplementedError

    held = Variants(services=replace(scripted_graph(), answerer=Own()))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="must be omitted"):
        held.answer_variant(AnswerOptions(top_k=1))
