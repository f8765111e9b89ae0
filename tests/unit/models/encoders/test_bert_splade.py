"""SPLADE by our own forward pass, on models of random weights."""

import json
import shutil
from pathlib import Path

import pytest
import tiny_models
import torch
from safetensors.numpy import load_file, save_file

from rag_core.errors import ModelError
from rag_core.models.encoders.bert_splade import BertSpladeEncoder
from rag_core.models.encoders.splade import SpladeEncoder
from rag_core.types import TermWeights

TEXTS = ["doors are of oak", "", "how do i rotate the keys weekly", "keys", "xylophone", "two keys by night"]
LONG = " ".join(tiny_models.WORDS * 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.splade_files(tmp_path_factory.mktemp("splade"))


@pytest.fixture(scope="module")
def encoder(folder: Path) -> BertSpladeEncoder:
    return BertSpladeEncoder(folder, "fp32")


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder, tmp_path / "copy")


def by_term(rows: list[TermWeights]) -> list[dict[str, float]]:
    return [dict(zip(row.terms, row.weights.tolist(), strict=True)) for row in rows]


def same(rows: list[TermWeights]) -> list[object]:
    return [pytest.approx(row, rel=1e-4, abs=1e-5) for row in by_term(rows)]


def test_weights_are_those_of_sentence_transformers(folder: Path, encoder: BertSpladeEncoder) -> None:
    reference = SpladeEncoder(folder, "fp32")
    assert by_term(encoder.weigh([*TEXTS, LONG])) == same(reference.weigh([*TEXTS, LONG]))
    assert by_term(encoder.weigh_questions([*TEXTS, LONG])) == same(reference.weigh_questions([*TEXTS, LONG]))


def test_any_number_of_threads_gives_the_same_weights_in_the_order_of_the_texts(
    folder: Path, encoder: BertSpladeEncoder
) -> None:
    texts = [*TEXTS, LONG] * 40
    assert (
        by_term(BertSpladeEncoder(folder, "fp32", threads=3).weigh(texts)) == same(encoder.weigh([*TEXTS, LONG])) * 40
    )


def test_no_texts_have_no_weights(encoder: BertSpladeEncoder) -> None:
    assert encoder.weigh([]) == encoder.weigh_questions([]) == []


def test_bf16_is_nearly_as_good(folder: Path, encoder: BertSpladeEncoder) -> None:
    (exact,), (rough,) = (
        by_term(encoder.weigh(TEXTS[2:3])),
        by_term(BertSpladeEncoder(folder, "bf16").weigh(TEXTS[2:3])),
    )
    for term, weight in rough.items():
        assert weight == pytest.approx(exact.get(term, 0), abs=0.1)


def test_the_files_of_transformers_alone_are_enough(copy: Path, encoder: BertSpladeEncoder) -> None:
    (copy / "modules.json").unlink()
    shutil.rmtree(copy / "1_SpladePooling")
    assert by_term(BertSpladeEncoder(copy, "fp32").weigh(TEXTS)) == same(encoder.weigh(TEXTS))


def test_norms_can_have_the_names_of_tensorflow(copy: Path, encoder: BertSpladeEncoder) -> None:
    weights = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): weight
        for name, weight in load_file(copy / "model.safetensors").items()
    }
    assert sum("gamma" in name for name in weights) == 6
    save_file(weights, copy / "model.safetensors")
    assert by_term(BertSpladeEncoder(copy, "fp32").weigh(TEXTS)) == same(encoder.weigh(TEXTS))


def test_a_vocabulary_of_several_blocks_gives_the_same_weights(
    folder: Path, encoder: BertSpladeEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_core.models.encoders.bert_layers._BLOCK_TERMS", 7)
    assert by_term(BertSpladeEncoder(folder, "fp32").weigh(TEXTS)) == same(encoder.weigh(TEXTS))


def test_a_decoder_with_weights_of_its_own_is_used(copy: Path, encoder: BertSpladeEncoder) -> None:
    weights = load_file(copy / "model.safetensors")
    weights["cls.predictions.decoder.weight"] = -weights["bert.embeddings.word_embeddings.weight"]
    save_file(weights, copy / "model.safetensors")
    assert by_term(BertSpladeEncoder(copy, "fp32").weigh(TEXTS[:1])) != same(encoder.weigh(TEXTS[:1]))


@pytest.mark.parametrize("head", ["", "ForSequenceClassification"])
def test_a_model_without_scores_of_terms_is_refused(tmp_path: Path, head: str) -> None:
    with pytest.raises(
        ModelError, match=r"not a model for splade.type bert \(it has no head of a masked language model"
    ):
        BertSpladeEncoder(tiny_models.bert_files(tmp_path, head))


@pytest.mark.parametrize(
    ("pooling", "got"),
    [
        ({"pooling_strategy": "sum"}, "sum of relu"),
        ({"activation_function": "log1p_relu"}, "max of log1p_relu"),
    ],
)
def test_another_pooling_is_refused_with_the_remedy(copy: Path, pooling: dict[str, str], got: str) -> None:
    (copy / "1_SpladePooling/config.json").write_text(json.dumps(pooling))
    with pytest.raises(ModelError, match=rf"pooling must be max of relu, got {got}\): use type sentence_transformers"):
        BertSpladeEncoder(copy)


def test_a_model_with_an_encoder_for_questions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"got also Router\): use type sentence_transformers"):
        BertSpladeEncoder(tiny_models.two_sided_splade_files(tmp_path))


def test_torch_keeps_to_one_thread(encoder: BertSpladeEncoder) -> None:
    encoder.weigh(TEXTS)
    assert torch.get_num_threads() == 1
