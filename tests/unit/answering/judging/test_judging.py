"""Which judge the settings make."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import tiny_models
import torch
from fakes.answering import ScriptedJudge, passage

from rag_core.answering.judging.cross_encoder import CrossEncoderJudge as Classifying
from rag_core.answering.judging.lexical import LexicalJudge as Lexical
from rag_core.answering.judging.llm import LlmJudge as LanguageModel
from rag_core.answering.judging.verbatim import VerbatimJudge
from rag_core.config import (
    BertEmbedder,
    CrossEncoderJudge,
    HashingEmbedder,
    JudgeSettings,
    LexicalJudge,
    LlmJudge,
    OpenAIGenerator,
    PythonObject,
    Settings,
)
from rag_core.errors import ConfigError, ModelError
from rag_core.settings import load_settings
from rag_core.types import Answer
from rag_core.wiring.judging import build_judge, build_local_judge, judge_model
from rag_core.wiring.models import RemoteModels

HASHING = HashingEmbedder(type="hashing")


def settings_with_judge(judge: JudgeSettings) -> Settings:
    settings = load_settings(environment={})
    guard = settings.guard.model_copy(update={"judge": judge})
    generation = OpenAIGenerator(type="openai", model="acme")
    return settings.model_copy(update={"guard": guard, "generation": generation, "embedding": HASHING})


@pytest.mark.parametrize(
    ("judge", "judge_class"),
    [
        (LexicalJudge(type="lexical"), Lexical),
        (LlmJudge(type="llm", model="acme"), LanguageModel),
        (PythonObject(type="python", object="fakes.answering:ScriptedJudge"), ScriptedJudge),
    ],
)
def test_each_type_makes_its_judge(judge: JudgeSettings, judge_class: type[Any]) -> None:
    assert isinstance(build_judge(settings_with_judge(judge), RemoteModels()), judge_class)


def test_quotes_are_checked_whatever_judge_is_chosen() -> None:
    assert isinstance(build_judge(load_settings(environment={}), RemoteModels()), VerbatimJudge)


def test_profiles_with_the_same_settings_share_a_classifier(tmp_path: Path) -> None:
    model = str(tiny_models.bert_files(tmp_path, "ForSequenceClassification"))
    first, second = (CrossEncoderJudge(type="cross_encoder", model=model) for _ in range(2))
    assert isinstance(build_local_judge(first, HASHING), Classifying)
    assert judge_model(first) is judge_model(second)


def test_a_model_that_is_not_there_is_named_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    judge = build_local_judge(CrossEncoderJudge(type="cross_encoder", model="acme/not-there"), HASHING)
    with pytest.raises(ModelError, match="model acme/not-there is not a folder"):
        asyncio.run(judge.judge(Answer(text="Keys last."), [passage(1, "Keys last.")]))


def test_a_gpu_that_is_not_there_is_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = str(tiny_models.bert_files(tmp_path, "ForSequenceClassification"))
    judge = build_local_judge(CrossEncoderJudge(type="cross_encoder", model=model, device="cuda"), HASHING)
    with pytest.raises(ModelError, match=r"guard\.judge\.device is cuda, but PyTorch .* finds no GPU: "):
        asyncio.run(judge.judge(Answer(text="Keys last."), [passage(1, "Keys last.")]))


def test_a_label_that_the_model_has_not_is_refused_before_the_first_answer(tmp_path: Path) -> None:
    model = str(tiny_models.bert_files(tmp_path, "ForSequenceClassification", names=("yes", "no")))
    with pytest.raises(ConfigError, match=r"guard\.judge\.label must be one of yes, no, got entailment"):
        build_local_judge(CrossEncoderJudge(type="cross_encoder", model=model), HASHING)


@pytest.mark.model
def test_the_lexical_judge_compares_the_vectors_of_tokens_if_the_embedder_has_them() -> None:
    answer, source = Answer(text="Each key is exchanged monthly."), [passage(1, "All keys are rotated every month.")]
    settings = LexicalJudge(type="lexical")
    plain = asyncio.run(build_local_judge(settings, HASHING).judge(answer, source))
    minilm = build_local_judge(settings, BertEmbedder(type="bert", model="all-MiniLM-L6-v2"))
    assert asyncio.run(minilm.judge(answer, source)).score != plain.score


def test_the_lexical_judge_judges_by_words_alone_where_the_encoder_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    answer, source = Answer(text="Each key is exchanged monthly."), [passage(1, "All keys are rotated every month.")]
    settings = LexicalJudge(type="lexical")
    missing = build_local_judge(settings, BertEmbedder(type="bert", model="acme/not-there"))
    plain = build_local_judge(settings, HASHING)
    assert asyncio.run(missing.judge(answer, source)) == asyncio.run(plain.judge(answer, source))
