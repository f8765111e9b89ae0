import pytest

from rag_core.settings import load_settings
from rag_core.wiring.budget import stage_limits

HYBRID = {"dense": 0.5, "dense scores": 0.02, "bm25": 0.5, "bm25 scores": 0.02, "encode": 0.5}
RERANKED = "{type: reranked, depth: 100, retriever: {type: bm25}, reranker: %s}"


def limits(name: str, *settings: str) -> dict[str, float]:
    chosen = load_settings(None, "default", settings, environment={}).retrieval
    return dict(stage_limits(name, chosen))  # type: ignore[arg-type]


def test_standard_allows_a_leg_half_a_second_and_a_search_one() -> None:
    assert limits("standard") == {**HYBRID, "retrieve": 1.0}


def test_realtime_allows_50_5_50_and_120_milliseconds() -> None:
    found = limits("realtime", f"retrieval={RERANKED % '{type: lexical}'}")
    assert found == {"encode": 0.05, "bm25": 0.05, "bm25 scores": 0.005, "rerank": 0.05, "retrieve": 0.12}


def test_a_model_that_reranks_has_as_much_for_each_batch() -> None:
    found = limits("standard", f"retrieval={RERANKED % '{type: cross_encoder, model: m, batch_size: 16}'}")
    assert found["rerank"] == pytest.approx(7 * 0.2)


def test_a_language_model_that_reranks_has_its_own_limits() -> None:
    assert "rerank" not in limits("standard", f"retrieval={RERANKED % '{type: llm, model: m}'}")


def test_no_budget_is_no_limit() -> None:
    assert stage_limits("none", load_settings(None, "default", [], environment={}).retrieval) == {}
