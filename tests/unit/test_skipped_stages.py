"""What `enabled: false` and `if_installed` do to the settings."""

import json
import logging

import pytest

from rag_core.config import HybridRetriever, LexicalJudge, MetadataSettings, RerankedRetriever, Settings, WeightedFusion
from rag_core.errors import ConfigError
from rag_core.settings import load_settings, replace_sections, with_overrides
from rag_core.skipped_stages import _log_skipped
from rag_core.wiring.ingestion import build_recipe, record_settings

RERANKED = "retrieval={type: reranked, retriever: {type: dense}, reranker: {type: lexical, enabled: false}}"
SPLADE = "splade={type: bert, model: splade-tiny, if_installed: %s}"
LEGS = "retrieval.retrievers={splade: {type: splade}, bm25: {instead_of: splade}}"


def load(*overrides: str) -> Settings:
    return load_settings(None, None, overrides, {})


def hybrid(settings: Settings) -> HybridRetriever:
    assert isinstance(settings.retrieval, HybridRetriever)
    return settings.retrieval


def test_a_disabled_leg_is_left_out_with_its_weight_and_its_timeout_and_named() -> None:
    settings = load("retrieval.retrievers.bm25.enabled=false", "retrieval.timeouts_ms={bm25: 50}")
    assert list(hybrid(settings).retrievers) == ["dense"]
    assert hybrid(settings).fusion.weights == {"dense": 0.5}  # type: ignore[union-attr]
    assert hybrid(settings).timeouts_ms == {}
    assert settings.skipped.questions == {"bm25": "retrieval.retrievers.bm25.enabled is false"}


def test_one_leg_of_two_with_alpha_keeps_no_alpha() -> None:
    settings = load("retrieval.retrievers.bm25.enabled=false", "retrieval.fusion={type: weighted, alpha: 0.7}")
    assert hybrid(settings).fusion == WeightedFusion(type="weighted")


@pytest.mark.parametrize(
    "retrieval",
    [
        RERANKED,
        "retrieval={type: reranked, enabled: false, retriever: {type: dense}, reranker: {type: lexical}}",
    ],
)
def test_without_its_reranker_a_search_ends_with_what_it_would_have_reranked(retrieval: str) -> None:
    settings = load(retrieval)
    assert settings.retrieval.type == "dense"
    assert list(settings.skipped.questions) == ["rerank"]


def test_other_outer_retrievers_are_skipped_alone() -> None:
    signals = "{type: signals, enabled: false, retriever: {type: dense}}"
    settings = load(f"retrieval={{type: reranked, retriever: {signals}, reranker: {{type: lexical}}}}")
    assert isinstance(settings.retrieval, RerankedRetriever)
    assert settings.retrieval.retriever.type == "dense"
    assert list(settings.skipped.questions) == ["signals"]


def test_stages_of_a_sync_are_skipped_and_named() -> None:
    ocr = "parsing.ocr={type: tesseract, enabled: false}"
    settings = load(
        "scan.enabled=false", "metadata={enabled: false, drop: [a]}", ocr, "graph={type: rules, enabled: false}"
    )
    assert (settings.scan.mode, settings.metadata, settings.parsing.ocr) == ("off", MetadataSettings(), None)
    assert settings.graph is None
    assert list(settings.skipped.ingestion) == ["metadata", "scan", "ocr", "graph"]
    assert settings.skipped.questions == {}


@pytest.mark.parametrize("section", ["splade={type: bert, model: none}", "graph={type: rules}"])
def test_a_leg_without_its_section_is_skipped_too(section: str) -> None:
    leg = section.partition("=")[0]
    settings = load(section, f"{leg}.enabled=false", f"retrieval.retrievers.{leg}.type={leg}")
    assert list(hybrid(settings).retrievers) == ["dense", "bm25"]
    assert settings.skipped.questions == {leg: f"{leg}.enabled is false"}


@pytest.mark.parametrize("disabled", ["guard", "guard.judge"])
def test_without_guard_or_judge_no_answer_is_judged_and_no_model_of_a_judge_is_loaded(
    disabled: str, caplog: pytest.LogCaptureFixture
) -> None:
    _log_skipped.cache_clear()
    caplog.set_level(logging.INFO, "rag_core.skipped_stages")
    judge = {"guard": "lexical", "guard.judge": "{type: cross_encoder, model: none}"}[disabled]
    settings = load(
        f"guard.judge={judge}" if "{" in judge else f"guard.judge.type={judge}", f"{disabled}.enabled=false"
    )
    assert settings.guard.mode == "off"
    assert f"stage judge is skipped: {disabled}.enabled is false" in caplog.messages
    assert isinstance(settings.guard.judge, LexicalJudge)


def test_a_leg_can_take_the_place_of_one_whose_package_is_missing() -> None:
    with_package, without = load(SPLADE % "pyyaml", LEGS), load(SPLADE % "no_such_package", LEGS)
    assert list(hybrid(with_package).retrievers) == ["dense", "splade"]
    assert with_package.skipped.questions == {"bm25": "splade is used instead"}
    assert list(hybrid(without).retrievers) == ["dense", "bm25"]
    assert without.skipped.questions == {"splade": "splade.if_installed: the package no_such_package is not installed"}


def test_a_job_keeps_what_was_skipped_when_it_was_queued() -> None:
    for package in ("pyyaml", "no_such_package"):
        settings = load(SPLADE % package, LEGS)
        recorded = settings.model_dump(mode="json")
        assert "if_installed" not in str(recorded.get("splade"))
        assert Settings.model_validate(recorded) == settings
        assert with_overrides(settings, ["answering.depth=7"]).skipped == settings.skipped


@pytest.mark.parametrize("stage", ["chunking", "embedding", "generation", "parsing"])
def test_a_stage_that_nothing_works_without_cannot_be_disabled(stage: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{stage}\.enabled: nothing works without this stage"):
        load(f"{stage}.enabled=false")


def test_neither_can_an_own_object_nor_the_last_leg() -> None:
    with pytest.raises(ConfigError, match=r"^chunking\.enabled must be true, because nothing works without"):
        load('chunking={type: python, object: "a:b", enabled: false}')
    with pytest.raises(ConfigError, match="retrieval must have a retriever that is not skipped, got none"):
        load("retrieval.retrievers.dense.enabled=false", "retrieval.retrievers.bm25.enabled=false")


def test_a_decision_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    _log_skipped.cache_clear()
    with caplog.at_level(logging.INFO, "rag_core.skipped_stages"):
        load("scan.enabled=false")
        load("scan.enabled=false")
    assert [record.getMessage() for record in caplog.records] == ["stage scan is skipped: scan.enabled is false"]


def test_an_enabled_stage_leaves_no_trace_in_what_is_stored() -> None:
    enabled = load("retrieval.retrievers.bm25.enabled=true", "scan.enabled=true")
    for settings in (load(), enabled):
        assert settings.pipeline_version == load().pipeline_version
        recorded = json.dumps(record_settings(settings))
        assert "enabled" not in recorded
        assert "skipped" not in recorded


@pytest.mark.parametrize(
    ("uri", "recipe"), [("a.md", "9435ac1ccc5ba391"), ("a.xml", "2058c1d1ed4e363a"), ("a.pdf", "4cfe18dc67a82009")]
)
def test_the_recipes_of_the_default_profile_are_what_stored_documents_have(uri: str, recipe: str) -> None:
    assert build_recipe(load()).fingerprint(uri) == f"{recipe}|file_mb 200"


def test_another_retrieval_does_not_keep_the_reasons_of_the_earlier_one() -> None:
    settings = load(RERANKED, "metadata.enabled=false")
    replaced = replace_sections(settings, {"retrieval": {"type": "bm25"}}, "bm25.yaml")
    assert replaced.skipped.questions == {}
    assert replaced.skipped.ingestion == settings.skipped.ingestion
