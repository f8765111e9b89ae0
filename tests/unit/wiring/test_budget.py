from math import inf

import pytest

from rag_core.config import HybridRetriever
from rag_core.settings import load_settings
from rag_core.wiring.budget import retriever_timeout, search_limits, stage_limits

HYBRID = {"dense": 0.5, "dense scores": 0.02, "bm25": 0.5, "bm25 scores": 0.02, "encode": 0.5}
RERANKED = "{type: reranked, depth: 100, retriever: {type: bm25}, reranker: %s}"


def limits(name: str, *settings: str) -> dict[str, float]:
    retrieval = load_settings(None, "default", settings, environment={}).retrieval
    return dict(stage_limits(name, retrieval))  # type: ignore[arg-type]


def test_standard_allows_a_leg_half_a_second_and_a_search_one() -> None:
    assert limits("standard") == {**HYBRID, "retrieve": 1.0}


def test_realtime_allows_50_5_50_and_120_milliseconds() -> None:
    budget = limits("realtime", f"retrieval={RERANKED % '{type: lexical}'}")
    assert budget == {"encode": 0.05, "bm25": 0.05, "bm25 scores": 0.005, "rerank": 0.05, "retrieve": 0.12}


def test_a_model_that_reranks_has_as_much_for_each_batch() -> None:
    budget = limits("standard", f"retrieval={RERANKED % '{type: cross_encoder, model: m, batch_size: 16}'}")
    assert budget["rerank"] == pytest.approx(7 * 0.2)


def test_a_language_model_that_reranks_has_its_own_limits() -> None:
    assert "rerank" not in limits("standard", f"retrieval={RERANKED % '{type: llm, model: m}'}")


def test_no_budget_is_no_limit() -> None:
    assert stage_limits("none", load_settings(None, "default", [], environment={}).retrieval) == {}


def test_default_limits_do_not_apply_to_a_patient_caller_and_those_that_are_set_do() -> None:
    default = load_settings(environment={})
    assert search_limits(default, patient=True) == {}
    assert search_limits(default, patient=False)["bm25"] == 0.5
    settings = load_settings(overrides=["answering.budget=realtime"], environment={})
    assert search_limits(settings, patient=True)["bm25"] == 0.05


def test_a_patient_caller_waits_for_every_leg_unless_a_timeout_is_set() -> None:
    for overrides, seconds in (([], inf), (["retrieval.timeout_ms=70"], 0.07)):
        section = load_settings(overrides=overrides, environment={}).retrieval
        assert isinstance(section, HybridRetriever)
        assert retriever_timeout(section, patient=True) == seconds
    assert retriever_timeout(section.model_copy(update={"timeout_ms": 9.0}), patient=False) == 0.009
