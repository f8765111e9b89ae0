"""The shipped profiles, as configuration: their models are not at hand."""

import os
import subprocess

import pytest
from hosts import RAG

from rag_core.config import BertEmbedder, ClinicalChunker, SectionsChunker, SemanticChunker
from rag_core.settings import load_layered_settings, load_settings

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


def test_what_detects_a_profile_is_no_setting() -> None:
    assert not [key for key in load_layered_settings(None, "pmc", environment={}).origins if key.startswith("detect")]


def test_without_its_model_a_profile_is_refused_by_the_models_name() -> None:
    command = [*RAG, "config", "check", "--profile", "pmc"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": "/nonexistent"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith(f"error: model {MODEL} is not a folder and cannot be downloaded from the model hub")
