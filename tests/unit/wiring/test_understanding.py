"""The understander of the settings."""

import asyncio
from pathlib import Path

import pytest

from rag_core.config import Settings
from rag_core.errors import ConfigError
from rag_core.retrieval.query.rewrite import LlmUnderstander
from rag_core.retrieval.query.rules import RuleUnderstander, VariantWeights
from rag_core.settings import load_settings
from rag_core.types import Query
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.understanding import build_interpreter

LLM = "conversation.understanding={type: llm, model: llama, base_url: http://localhost:1, prompt: %s}"


def settings_of(*overrides: str) -> Settings:
    return load_settings(overrides=["embedding.type=hashing", *overrides])


def test_the_weights_of_the_settings_are_those_of_the_rules() -> None:
    assert build_interpreter(settings_of(), RemoteModels()) == RuleUnderstander()
    changed = build_interpreter(settings_of("conversation.weights.first=0"), RemoteModels())
    assert changed == RuleUnderstander(VariantWeights(first=0))


def test_a_language_model_has_its_instructions_and_500_ms(tmp_path: Path) -> None:
    path = tmp_path / "prompt.yaml"
    path.write_text("system: Rewrite.")
    understander = build_interpreter(settings_of(LLM % path), RemoteModels())
    assert isinstance(understander, LlmUnderstander)
    assert (understander.system, understander.timeout) == ("Rewrite.", 0.5)


def test_instructions_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml"):
        build_interpreter(settings_of(LLM % "missing.yaml"), RemoteModels())


def test_an_intent_of_the_settings_is_found(tmp_path: Path) -> None:
    path = tmp_path / "complaint.yaml"
    path.write_text(
        "description: A complaint.\nneeds_sources: false\nphrases: {en: [this is bad]}\nreplies: {en: Sorry.}"
    )
    understander = build_interpreter(settings_of(f"conversation.intents=[{path}]"), RemoteModels())
    assert asyncio.run(understander.understand(Query(text="This is bad!"), ())).intent == "complaint"
