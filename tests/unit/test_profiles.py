"""The shipped profiles, as configuration: their models are not at hand."""

import os
import subprocess

import pytest
from hosts import RAG

from rag_core.config import (
    BertEmbedder,
    ClinicalChunker,
    HybridRetriever,
    SectionsChunker,
    SemanticChunker,
    find_reranked_retriever,
    unwrap,
)
from rag_core.settings import load_layered_settings, load_settings
from rag_core.wiring.chunking import build_chunker

MODEL = "BAAI/bge-m3"


@pytest.mark.parametrize(
    ("profile", "chunking", "tokens"),
    [
        ("gpu", SectionsChunker, 600),
        ("pmc", SemanticChunker, 650),
        ("dailymed", SectionsChunker, 450),
        ("clinicaltrials", ClinicalChunker, 350),
    ],
)
def test_a_profile_has_its_chunking_and_a_model_that_reads_it(profile: str, chunking: type, tokens: int) -> None:
    settings = load_settings(None, profile, environment={})
    assert isinstance(settings.chunking, chunking)
    assert settings.chunking.tokens == tokens
    assert isinstance(settings.embedding, BertEmbedder)
    assert settings.embedding.model == MODEL


def test_the_profile_for_a_gpu_embeds_there_in_the_precision_that_it_multiplies_best() -> None:
    embedding = load_settings(None, "gpu", environment={}).embedding
    assert isinstance(embedding, BertEmbedder)
    assert (embedding.device, embedding.precision) == ("cuda", "auto")


@pytest.mark.parametrize("name", ["pmc", "dailymed", "clinicaltrials"])
def test_a_cpu_variant_splits_as_its_profile_does_into_chunks_that_its_model_reads(name: str) -> None:
    settings = load_settings(None, f"{name}-cpu", environment={})
    assert type(settings.chunking) is type(load_settings(None, name, environment={}).chunking)
    assert settings.embedding == load_settings(environment={}).embedding
    build_chunker(settings)  # raises ConfigError if chunks exceed the model's window


@pytest.mark.parametrize(
    ("name", "with_splade", "without", "reranker"),
    [
        ("pmc", ["dense", "splade"], ["dense", "bm25"], ""),
        ("dailymed", ["dense", "bm25"], ["dense", "bm25"], "lexical"),
        ("clinicaltrials", ["dense", "bm25", "splade"], ["dense", "bm25"], "late_interaction"),
    ],
)
def test_a_cpu_variant_has_the_legs_of_its_profile_as_far_as_they_are_installed(
    name: str, with_splade: list[str], without: list[str], reranker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_installed, names in ((True, with_splade), (False, without)):
        monkeypatch.setattr("rag_core.skipped_stages._is_installed", lambda _, installed=is_installed: installed)
        retrieval = load_settings(None, f"{name}-cpu", environment={}).retrieval
        *_, hybrid = unwrap(retrieval)
        assert isinstance(hybrid, HybridRetriever)
        assert list(hybrid.retrievers) == names
        reranked = find_reranked_retriever(retrieval)
        assert (reranked.reranker.type if reranked else "") == reranker


def test_the_cross_encoder_of_articles_is_skipped_without_a_gpu_and_named() -> None:
    skipped = load_settings(None, "pmc-cpu", environment={}).skipped.questions
    assert skipped["rerank"] == "retrieval.reranker.enabled is false"


def test_the_condition_that_detects_a_profile_is_not_a_setting() -> None:
    assert not [key for key in load_layered_settings(None, "pmc", environment={}).origins if key.startswith("detect")]


@pytest.mark.slow
def test_without_its_model_a_profile_is_refused_by_the_models_name() -> None:
    command = [*RAG, "config", "check", "--profile", "pmc"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": "/nonexistent"}
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert process.returncode == 3, process.stderr
    assert process.stderr.startswith(
        f"error: model {MODEL} is not a folder and cannot be downloaded from the model hub"
    )
