"""Every model of a profile gives on a GPU what it gives on a CPU."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_models
import torch

from rag_core.config import (
    BertEmbedder,
    BertSplade,
    CrossEncoderJudge,
    CrossEncoderReranker,
    LateInteractionReranker,
    SentenceTransformersEmbedder,
    SentenceTransformersSplade,
    SpladeSettings,
)
from rag_core.protocols import PairScorer
from rag_core.wiring.embedding import build_encoder
from rag_core.wiring.judging import judge_model
from rag_core.wiring.reranking import reranker_model
from rag_core.wiring.splade import build_weigher

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

TEXTS = ["how do i rotate the keys", "doors are of oak", "a house has two doors by night and a key", "weekly", ""]
QUESTION = "how do i turn a key"
PRECISION = {"fp32": 1e-4, "bf16": 0.1}
"""How far from the CPU's fp32 a number may be: the tiny models' weights are larger than those of real ones."""


def bert(folder: Path, **options: Any) -> list[list[float]]:
    settings = BertEmbedder(type="bert", model=str(tiny_models.bert_files(folder, "")), **options)
    rows: list[list[float]] = build_encoder(settings, threads=2).embed(TEXTS).tolist()
    return rows


def sentence_transformers(folder: Path, **options: Any) -> list[list[float]]:
    settings = SentenceTransformersEmbedder(
        type="sentence_transformers", model=str(tiny_models.bert_files(folder, "")), **options
    )
    rows: list[list[float]] = build_encoder(settings).embed(TEXTS).tolist()
    return rows


def cross_encoder(folder: Path, **options: Any) -> list[float]:
    model = str(tiny_models.bert_files(folder, "ForSequenceClassification"))
    return score_pairs(reranker_model(CrossEncoderReranker(type="cross_encoder", model=model, **options)))


def late_interaction(folder: Path, **options: Any) -> list[float]:
    model = str(tiny_models.multi_vector_files(folder))
    return score_pairs(reranker_model(LateInteractionReranker(type="late_interaction", model=model, **options)))


def judge(folder: Path, **options: Any) -> list[float]:
    names = ("entailment", "neutral", "contradiction")
    model = str(tiny_models.bert_files(folder, "ForSequenceClassification", names=names))
    return score_pairs(judge_model(CrossEncoderJudge(type="cross_encoder", model=model, **options)))


def splade(folder: Path, **options: Any) -> list[list[float]]:
    model = str(tiny_models.splade_files(folder))
    return weights_by_term(SentenceTransformersSplade(type="sentence_transformers", model=model, **options))


def bert_splade(folder: Path, **options: Any) -> list[list[float]]:
    return weights_by_term(BertSplade(type="bert", model=str(tiny_models.splade_files(folder)), **options))


def weights_by_term(settings: SpladeSettings) -> list[list[float]]:
    weigher = build_weigher(settings)
    weighed = [dict(zip(weights.terms, weights.weights, strict=True)) for weights in weigher.weigh(TEXTS)]
    terms = sorted({term for weights in weighed for term in weights})
    return [[weights.get(term, 0.0) for term in terms] for weights in weighed]


def score_pairs(pairs: PairScorer) -> list[float]:
    return asyncio.run(pairs.score([(QUESTION, text) for text in TEXTS]))


@pytest.mark.parametrize("precision", PRECISION)
@pytest.mark.parametrize(
    "model",
    [bert, sentence_transformers, cross_encoder, late_interaction, judge, splade, bert_splade],
    ids=lambda model: model.__name__,
)
def test_a_model_gives_on_a_gpu_what_it_gives_on_a_cpu(
    tmp_path: Path, model: Callable[..., list[Any]], precision: str
) -> None:
    expected = model(tmp_path / "cpu", device="cpu", precision="fp32")
    actual = model(tmp_path / "gpu", device="cuda", precision=precision)
    torch.testing.assert_close(torch.tensor(actual), torch.tensor(expected), atol=PRECISION[precision], rtol=0.1)
