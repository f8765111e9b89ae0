"""Which profiles are detected for single documents, and what hinders a machine from using one."""

import ctypes
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from rag_core.config import SectionsChunker, SemanticChunker, Settings
from rag_core.detection import Detection
from rag_core.errors import ConfigError
from rag_core.models.loading import has_cuda_gpu
from rag_core.settings import load_settings, read_detection
from rag_core.wiring.chunking import build_chunker
from rag_core.wiring.profile_choice import add_document_profiles, find_obstacle

HASHING = "embedding.type=hashing"


def loader(*overrides: str) -> Callable[[str], Settings]:
    return partial(load_settings, None, overrides=overrides, environment={})


def detect_profiles(*overrides: str, profile: str = "default") -> dict[str, Any]:
    load = loader(*overrides)
    settings = add_document_profiles(load(profile), read_detection(), load)
    return {name: one.chunking for name, one in settings.document_profiles.items()}


def test_profiles_with_the_model_of_the_sync_split_their_documents() -> None:
    assert list(detect_profiles()) == ["clinicaltrials-cpu", "dailymed-cpu", "pmc-cpu"]
    assert detect_profiles()["pmc-cpu"] == SemanticChunker(type="semantic", tokens=200, prefix_tokens=48)


def test_the_first_of_a_profile_and_its_variant_whose_chunks_fit_the_window_is_used() -> None:
    assert list(detect_profiles(HASHING)) == ["clinicaltrials", "dailymed", "pmc-cpu"]
    assert list(detect_profiles(HASHING, "embedding.window=800")) == ["clinicaltrials", "dailymed", "pmc"]


def test_an_override_applies_to_the_chunks_of_every_profile() -> None:
    chunkers = detect_profiles(HASHING, "chunking.tokens=90")
    assert {chunker.tokens for chunker in chunkers.values()} == {90}


def test_an_override_that_does_not_suit_a_profile_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rag_core.wiring.profile_choice"):
        chunkers = detect_profiles(HASHING, "chunking.overlap=4")
    assert list(chunkers) == ["clinicaltrials", "dailymed"]
    [record] = caplog.records
    assert record.getMessage().startswith("profile pmc is not detected for single documents: chunking.overlap: unknown")


def test_an_override_that_does_not_suit_the_default_profile_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rag_core.wiring.profile_choice"):
        assert detect_profiles("retrieval.retriever.depth=30", profile="pmc-cpu") == {}
    [record] = caplog.records
    assert record.getMessage().startswith("no profile is detected for single documents: retrieval.retriever: unknown")


def test_a_machine_without_the_model_still_detects_profiles() -> None:
    assert list(detect_profiles("embedding.model=/nowhere")) == ["clinicaltrials", "dailymed", "pmc"]


def test_a_chunker_that_was_chosen_for_the_sync_applies_to_all_documents() -> None:
    assert detect_profiles(profile="pmc-cpu") == {}


def test_a_profile_with_another_model_is_noted_without_a_chunker() -> None:
    load = loader()
    detection = Detection(patterns={"gpu": {"kind": ["x"]}}, cpu_variants={})
    settings = add_document_profiles(load("default"), detection, load)
    assert settings.document_profiles["gpu"].chunking is None


def test_the_models_of_profiles_are_compared_without_their_speed() -> None:
    load = loader()
    slow = load_settings(None, None, ["embedding.precision=fp32"], {})
    settings = add_document_profiles(slow, read_detection(), load)
    assert settings.document_profiles["dailymed-cpu"].chunking == SectionsChunker(type="sections", prefix_tokens=48)


def test_too_large_chunks_of_a_users_own_profile_are_an_error_that_names_it() -> None:
    def load(profile: str) -> Settings:
        return loader(HASHING, *([f"chunking.tokens={900}"] if profile == "mine" else []))("default")

    detection = Detection(patterns={"mine": {"kind": ["x"]}}, cpu_variants={}, is_shipped=False)
    with pytest.raises(ConfigError, match=r"^profile mine, which is detected for single documents: chunking\.tokens"):
        build_chunker(add_document_profiles(load("default"), detection, load))


def test_a_job_keeps_the_profiles_of_its_documents() -> None:
    settings = add_document_profiles(loader()("default"), read_detection(), loader())
    assert Settings.model_validate(settings.model_dump(mode="json")) == settings
    assert settings.pipeline_version == loader()("default").pipeline_version


@pytest.mark.parametrize(
    ("profile", "overrides", "obstacle"),
    [
        ("default", [], ""),
        ("pmc-cpu", [], ""),
        ("pmc", [], "no GPU was found"),
        ("pmc", ["embedding.device=cpu", "embedding.model=/there/is/none"], "model /there/is/none is not a folder"),
        (
            "pmc",
            [HASHING],
            "chunking.tokens + chunking.prefix_tokens + special tokens must be <= the embedder's window",
        ),
        ("pmc", ["chunking.overlap=4"], "chunking.overlap: unknown setting"),
    ],
)
def test_obstacles_of_a_machine_are_reported_without_loading_a_model(
    profile: str, overrides: Sequence[str], obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_core.wiring.profile_choice.has_cuda_gpu", lambda: False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    reason = find_obstacle(profile, loader(*overrides))
    assert reason.startswith(obstacle)
    assert bool(reason) == bool(obstacle)


class Driver:
    """A CUDA driver that reports a number of GPUs."""

    def __init__(self, gpus: int, status: int = 0) -> None:
        self.gpus, self.status = gpus, status

    def cuInit(self, _flags: int) -> int:
        return self.status

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.gpus
        return 0


@pytest.mark.parametrize(
    ("torch", "driver", "has_gpu"),
    [
        ("2.11.0+cu128", Driver(1), True),
        ("2.11.0", Driver(2), True),
        ("2.11.0", Driver(0), False),
        ("2.11.0", Driver(1, status=100), False),
        ("2.11.0+cpu", Driver(1), False),
        ("2.11.0", None, False),
    ],
)
def test_a_gpu_needs_a_driver_that_finds_one_and_a_torch_that_can_use_it(
    torch: str, driver: Driver | None, has_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_library(_name: str) -> Driver:
        if driver is None:
            raise OSError("libcuda.so.1: cannot open shared object file")
        return driver

    monkeypatch.setattr("rag_core.models.loading.version", lambda _: torch)
    monkeypatch.setattr(ctypes, "CDLL", open_library)
    assert has_cuda_gpu() == has_gpu
