"""`features:` as settings: what each stands for, the phases of a rollout, and what wins."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from rag_core.config import Settings
from rag_core.errors import ConfigError
from rag_core.features import FEATURES, FLAGS
from rag_core.settings import load_layered_settings
from rag_core.settings_schema import file_schema


def load(text: str, folder: Path, *overrides: str, profile: str | None = None, **environment: str) -> Settings:
    file = folder / "rag.yaml"
    file.write_text(text)
    return load_layered_settings(file, profile, overrides, environment).settings


def complaint(text: str, folder: Path) -> str:
    with pytest.raises(ConfigError) as raised:
        load(text, folder)
    return str(raised.value)


def stages(settings: Settings) -> dict[str, Any]:
    """The settings that features switch, by feature."""
    weights = settings.conversation.weights
    return {
        "hybrid_search": settings.retrieval.type == "hybrid" and len(settings.retrieval.retrievers) > 1,
        "conversation": settings.answering.history > 0,
        "query_rewriting": (weights.carried, weights.previous, weights.rewrite) != (0, 0, 0),
        "topic_shift": settings.conversation.topic_shift.type != "none",
        "clarification": settings.conversation.clarification.enabled,
        "guard": settings.guard.mode != "off",
        "repetition_check": settings.conversation.repetition.enabled,
        "feedback": settings.telemetry.replies,
        "read_audit": settings.audit.reads != "never",
        "scan": settings.scan.mode != "off",
        "ocr": settings.parsing.ocr is not None,
        "rate_limits": settings.rate_limits.enabled is not False,
    }


@pytest.mark.parametrize("name", [name for name in FEATURES if name != "reranking"])
def test_a_feature_switches_its_stage_and_no_other(name: str, tmp_path: Path) -> None:
    plain = stages(load("", tmp_path))
    assert stages(load(f"features: {{{name}: false}}", tmp_path)) == {**plain, name: False}
    assert stages(load(f"features: {{{name}: true}}", tmp_path)) == {**plain, name: True}


def test_reranking_switches_the_reranker_of_the_profile(tmp_path: Path) -> None:
    types = [
        load(f"features: {{reranking: {value}}}", tmp_path, profile=profile).retrieval.type
        for profile, value in (("dailymed-cpu", "true"), ("dailymed-cpu", "false"), ("pmc-cpu", "true"))
    ]
    assert types == ["reranked", "hybrid", "reranked"]
    message = complaint("features: {reranking: true}", tmp_path)
    assert message == ("features.reranking requires a reranked retriever, which the profile does not have, got true")


@pytest.mark.parametrize(
    ("flags", "phase"),
    [
        ("conversational_search_phase1: true", 1),
        ("conversational_search_phase1: true, conversational_search_phase2: true", 2),
        ("conversational_search_phase3: true", 3),
        ("conversational_search_phase3: true, conversational_search_phase4: false", 3),
        ("conversational_search_phase4: true", 4),
        ("conversational_search_phase3: false", 2),
    ],
)
def test_a_phase_switches_the_features_after_it_off(flags: str, phase: int, tmp_path: Path) -> None:
    plain, rolled = stages(load("", tmp_path)), stages(load(f"features: {{{flags}}}", tmp_path))
    assert rolled == {name: value and FEATURES[name].phase <= phase for name, value in plain.items()}


def test_a_phase_enables_nothing_that_the_profile_disables(tmp_path: Path) -> None:
    text = "features: {conversational_search_phase4: true}"
    assert load(text, tmp_path, profile="pmc-cpu").retrieval.type == "hybrid"


def test_a_single_feature_wins_over_its_phase(tmp_path: Path) -> None:
    settings = load("features: {conversational_search_phase1: true, guard: true}", tmp_path)
    assert (settings.guard.mode, settings.telemetry.replies) == ("flag", False)


def test_settings_of_the_user_from_any_place_win_over_features(tmp_path: Path) -> None:
    guard = "guard: {enabled: true}\nprofiles: {mine: {conversation: {topic_shift: {type: drift}}}}\n"
    environment = {"RAG_FEATURES__GUARD": "false", "RAG_FEATURES__TOPIC_SHIFT": "false"}
    settings = load(guard, tmp_path, "features.scan=false", profile="mine", **environment)
    assert (settings.guard.mode, settings.conversation.topic_shift.type, settings.scan.mode) == ("flag", "drift", "off")


def test_the_origin_of_a_setting_is_features(tmp_path: Path) -> None:
    file = tmp_path / "rag.yaml"
    file.write_text("features: {conversation: false, topic_shift: false}")
    layered = load_layered_settings(file, None, (), {})
    settings = ("answering.history", "conversation.topic_shift.type")
    assert [layered.origins[name] for name in settings] == ["features", "features"]


def test_features_that_change_nothing_leave_the_pipelines_version(tmp_path: Path) -> None:
    every = ", ".join(f"{name}: true" for name, feature in FEATURES.items() if feature.phase and not feature.requires)
    assert load(f"features: {{{every}}}", tmp_path).pipeline_version == load("", tmp_path).pipeline_version


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("features: {rerankin: true}", "features.rerankin: unknown feature; did you mean features.reranking?"),
        ("features: {xyz: true}", "features.xyz: unknown feature; the features are hybrid_search, conversation, "),
        ("features: {guard: maybe}", "features.guard must be true or false, got 'maybe'"),
        ("features: [guard]", "features must be a mapping of names to true or false, got ['guard']"),
        (
            "features: {conversational_search_phase2: false, conversational_search_phase4: true}",
            "features.conversational_search_phase4 includes phase 2, which is false; set one of them",
        ),
        ("featurs: {}", "featurs: unknown setting; did you mean features?"),
        (
            "retrieval: {type: hybrid, retrievers: [dense]}\nfeatures: {hybrid_search: false}",
            "retrieval.retrievers: Input should be a valid dictionary",
        ),
        (
            "retrieval: {type: hybrid, retrievers: {a: 3}}\nfeatures: {hybrid_search: false}",
            "retrieval.retrievers.a",
        ),
        ("conversation: 5\nfeatures: {topic_shift: false}", "conversation: Input should be a valid dictionary"),
    ],
)
def test_a_wrong_flag_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    assert complaint(text, tmp_path).startswith(message)


def test_the_schema_knows_the_features() -> None:
    schema = file_schema()
    jsonschema.validate({"features": dict.fromkeys(FLAGS, True), "profiles": {"mine": {"features": None}}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"features": {"rerank": True}}, schema)
