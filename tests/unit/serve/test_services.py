"""What the profiles of a gateway share."""

from contextlib import nullcontext
from typing import Any

import pytest
from fakes.serving import scripted_graph

from rag_core.config import Settings
from rag_core.settings import load_settings
from rag_core.wiring.models import RemoteModels
from serve import services
from serve.services import SharedResources

JUDGE = "guard.judge={type: llm, model: tiny, base_url: 'http://127.0.0.1:1/v1'}"
GENERATOR = "generation={type: openai, model: tiny, base_url: 'http://127.0.0.1:1/v1'}"
PIPELINE = scripted_graph().answerer


def load(profile: str, *overrides: str) -> Settings:
    return load_settings(None, None, overrides, environment={}).model_copy(update={"profile": profile})


def share(profile_settings: Settings) -> SharedResources:
    parts: dict[str, Any] = dict.fromkeys(("postgres", "corpus", "conversation_store", "authenticator", "rate_limiter"))
    models = RemoteModels(protect=lambda _: nullcontext)
    return SharedResources(settings=profile_settings, remote_models=models, dependencies={}, **parts)


def test_one_profile_is_built_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    resources, is_locked = share(load("default")), []
    for build in ("build_retriever", "build_pipeline"):
        monkeypatch.setattr(services, build, lambda *_: is_locked.append(resources.loading.locked()) or PIPELINE)
    resources.build_services(load("other"))
    assert (is_locked, resources.loading.locked()) == ([True, True], False)


def test_an_endpoint_that_the_own_profile_never_calls_has_a_breaker_for_another_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for build in ("build_retriever", "build_pipeline"):
        monkeypatch.setattr(services, build, lambda *_: PIPELINE)
    built = share(load("default", JUDGE)).build_services(load("other", JUDGE, GENERATOR))
    assert built.remote_models.protect("judge") is not nullcontext
    assert built.remote_models.protect("embedder") is nullcontext
