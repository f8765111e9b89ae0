"""What may change while a gateway serves, and what may not."""

import pytest

from rag_core.config import DistributionFusion, HybridRetriever, Settings
from rag_core.errors import ConfigError
from rag_core.settings import load_settings
from serve.shape.reload import parse_user_config, reload_settings


def settings(profile: str = "gpu", *overrides: str) -> Settings:
    return load_settings(None, profile, overrides, environment={})


@pytest.mark.parametrize(
    "override",
    [
        "retrieval.depth=50",
        "retrieval.timeout_ms=900",
        "retrieval.retriever.depth=30",
        "retrieval.retriever.timeouts_ms.dense=200",
        "retrieval.retriever.fusion={type: rrf, k: 30}",
        "retrieval.retriever.fusion.weights={dense: 0.9, bm25: 0.1}",
        "guard.mode=block",
        "guard.stream=buffer",
        "guard.timeout_ms=500",
        "guard.on_judge_error=block",
        "guard.judge.supported=0.9",
        "guard.judge.partial=0.1",
        "answering.depth=20",
        "answering.budget=realtime",
        "packing.tokens=2000",
        "prompt.citations=footnote",
    ],
)
def test_settings_of_weights_and_answers_can_change(override: str) -> None:
    before = settings()
    after = reload_settings(before, [override])
    assert after == settings("gpu", override)
    assert after.pipeline_version != before.pipeline_version


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("chunking.tokens=300", "chunking.tokens"),
        ("embedding.model=other", "embedding.model"),
        ("store.url=host=/elsewhere", "store.url"),
        ("tenant=tenant-of-others", "tenant"),
        ("splade={type: sentence_transformers, model: m}", "splade.model"),
        ("retrieval.reranker.model=other", "retrieval.reranker.model"),
        ("retrieval={type: dense}", "retrieval.type"),
        ("retrieval.retriever={type: bm25, k1: 1.2}", "retrieval.retriever.type"),
        ("retrieval.retriever.retrievers.fusion={type: dense}", "retrieval.retriever.retrievers.fusion.type"),
        ("guard.judge.model=other", "guard.judge.model"),
        ("guard.judge={type: lexical}", "guard.judge.type"),
        ("generation.model=other", "generation.model"),
        ("limits.file_mb=1", "limits.file_mb"),
    ],
)
def test_settings_of_models_stores_and_ingestion_cannot_change(override: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        reload_settings(settings(), [override])
    assert str(refused.value).startswith("cannot change while the gateway serves: ")
    assert key in str(refused.value)


def test_every_setting_that_cannot_change_is_named() -> None:
    with pytest.raises(ConfigError) as refused:
        reload_settings(settings(), ["embedding.model=a", "guard.mode=off", "chunking.tokens=300"])
    assert "cannot change while the gateway serves: chunking.tokens, embedding.model;" in str(refused.value)


def test_an_unknown_setting_is_refused_as_on_the_command_line() -> None:
    with pytest.raises(ConfigError, match=r"answering\.dept: unknown setting; did you mean answering\.depth\?"):
        reload_settings(settings(), ["answering.dept=3"])
    with pytest.raises(ConfigError, match=r"takes SECTION\.KEY=VALUE, got 'answering'"):
        reload_settings(settings(), ["answering"])
    with pytest.raises(ConfigError, match="weights must name retrievers"):
        reload_settings(settings(), ["retrieval.retriever.fusion.weights.splade=1"])


def test_changes_are_over_what_the_gateway_was_started_with() -> None:
    started = settings("default", "answering.depth=11", "retrieval.fusion.weights.dense=0.7")
    changed = reload_settings(started, ["packing.passages=3"])
    assert isinstance(changed.retrieval, HybridRetriever)
    assert isinstance(changed.retrieval.fusion, DistributionFusion)
    assert (changed.answering.depth, changed.packing.passages) == (11, 3)
    assert changed.retrieval.fusion.weights["dense"] == 0.7
    assert reload_settings(started, []) == started


@pytest.mark.parametrize("user_config", [{"sets": []}, {"set": "packing.passages=3"}, {"set": [3]}])
def test_a_user_config_of_another_form_is_refused(user_config: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"user_config\.set"):
        parse_user_config(user_config)
