"""The profiles of a gateway: which are served, and how one is built at its first use."""

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from fakes.answering import ScriptedGenerator, ScriptedRetriever, passage
from fakes.serving import scripted_graph

from rag_core.config import Settings
from rag_core.errors import ConfigError, ModelError, RagError, UsageError
from rag_core.settings import load_settings
from rag_core.telemetry.operation import Operation, enter_operation
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles
from serve.services import Services

NAMES = ("default", "fast", "slow")


def settings(name: str, *overrides: str) -> Settings:
    return load_settings(None, None, overrides, environment={}).model_copy(update={"profile": name})


def services(profile: Settings) -> Services:
    """Services whose only document is named like the profile."""
    hits = [passage(1, f"Read by {profile.profile}.", title=profile.profile).hit]
    graph = scripted_graph(ScriptedRetriever(hits=hits), ScriptedGenerator(answers=[[f"{profile.profile} [1]."]] * 9))
    return replace(graph, settings=profile)


class Builder:
    """A builder of services that counts the profiles it builds, and can be made to fail or wait."""

    def __init__(self, error: Exception | None = None, gate: threading.Event | None = None) -> None:
        self.built: list[str] = []
        self.error, self.gate = error, gate

    def __call__(self, profile: Settings) -> Services:
        self.built.append(profile.profile)
        if self.gate is not None:
            self.gate.wait(10)
        if self.error is not None:
            raise self.error
        return services(profile)


def serve_profiles(builder: Builder, unserved: dict[str, str] | None = None) -> ServedProfiles:
    others = {name: settings(name) for name in NAMES[1:]}
    return ServedProfiles(services(settings("default")), others, builder, unserved or {})


def request(profiles: ServedProfiles, method: str, path: str, body: object = None) -> httpx2.Response:
    async def send() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=build_fastapi(profiles), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, json=body)

    return asyncio.run(send())


def test_a_request_without_a_profile_builds_no_other() -> None:
    builder = Builder()
    body = request(serve_profiles(builder), "POST", "/v1/retrieve", {"query": "?"}).json()
    assert (body["profile"], builder.built) == ({"name": "default", "selected_by": "default"}, [])


@pytest.mark.parametrize("name", NAMES)
def test_each_route_answers_with_the_named_profile(name: str) -> None:
    profiles = serve_profiles(Builder())
    body = request(profiles, "POST", "/v1/retrieve", {"query": "?", "profile": name}).json()
    assert (body["profile"], body["results"][0]["title"]) == ({"name": name, "selected_by": "explicit"}, name)
    assert body["pipeline_version"].startswith(f"{name}:v1+")
    answered = request(profiles, "POST", "/v1/answer", {"question": "?", "profile": name}).json()
    assert answered["answer"] == f"{name} [1]."
    message = {"messages": [{"role": "user", "content": "?"}]}
    for chat in ({"model": f"docs:{name}"}, {"model": "docs", "rag": {"profile": name}}):
        completion = request(profiles, "POST", "/v1/chat/completions", {**message, **chat}).json()
        assert completion["choices"][0]["message"]["content"] == f"{name} [1]."


def test_requests_at_the_same_time_build_a_profile_once() -> None:
    builder = Builder()

    async def find_thrice() -> list[Any]:
        profiles = serve_profiles(builder)
        return await asyncio.gather(*(profiles.find("fast") for _ in range(3)))

    first, *others = asyncio.run(find_thrice())
    assert builder.built == ["fast"]
    assert all(variants is first for variants in others)


def test_a_client_that_disconnects_does_not_stop_the_build_for_others() -> None:
    gate = threading.Event()
    builder = Builder(gate=gate)

    async def disconnect() -> str:
        profiles = serve_profiles(builder)
        first = asyncio.create_task(profiles.find("fast"))
        await asyncio.sleep(0)
        second = asyncio.create_task(profiles.find("fast"))
        await asyncio.sleep(0)
        first.cancel()
        gate.set()
        return (await second).services.settings.profile

    assert asyncio.run(disconnect()) == "fast"
    assert builder.built == ["fast"]


def test_a_profile_whose_model_is_missing_is_a_problem_and_tried_again() -> None:
    builder = Builder(error=ModelError("model x cannot be downloaded"))
    profiles = serve_profiles(builder)
    body = {"query": "?", "profile": "slow"}
    refused = request(profiles, "POST", "/v1/retrieve", body)
    assert (refused.status_code, refused.json()["detail"]) == (503, "model x cannot be downloaded")
    builder.error = None
    assert request(profiles, "POST", "/v1/retrieve", body).status_code == 200
    assert builder.built == ["slow", "slow"]


@pytest.mark.parametrize("path", ["/v1/retrieve", "/v1/answer"])
def test_an_unknown_profile_is_refused_with_the_list(path: str) -> None:
    body = {"query" if path == "/v1/retrieve" else "question": "?", "profile": "fsat"}
    problem = request(serve_profiles(Builder()), "POST", path, body)
    assert problem.status_code == 422
    assert problem.json()["detail"] == "profile must be one of default, fast, slow, got 'fsat'"


def test_a_profile_that_cannot_be_served_is_refused_with_the_reason() -> None:
    profiles = serve_profiles(Builder(), {"slow": "embedding.device is cuda, but there is no GPU"})
    with pytest.raises(
        UsageError, match=r"profile slow is not served here: embedding\.device is cuda, .*; served: def"
    ):
        asyncio.run(profiles.find("slow"))
    rows = {row["name"]: row for row in request(profiles, "GET", "/v1/profiles").json()["data"]}
    assert {name: row["serving"] for name, row in rows.items()} == {"default": True, "fast": True, "slow": False}
    assert [name for name, row in rows.items() if row["default"]] == ["default"]
    assert rows["slow"]["reason"] == "embedding.device is cuda, but there is no GPU"


def test_the_reason_for_a_profile_that_is_not_served_hides_paths() -> None:
    profiles = serve_profiles(Builder(), {"slow": "cannot read /home/operator/prompts/slow.yaml"})
    problem = request(profiles, "POST", "/v1/retrieve", {"query": "?", "profile": "slow"})
    assert problem.status_code == 422
    assert problem.json()["detail"].startswith("profile slow is not served here: cannot read ***; served: default")


def test_only_a_served_profile_is_a_label_of_metrics() -> None:
    async def find(name: str) -> str:
        with enter_operation(Operation(name="retrieve", profile="default")) as operation:
            with suppress(UsageError):
                await serve_profiles(Builder()).find(name)
            return operation.profile

    assert asyncio.run(find("fast")) == "fast"
    assert asyncio.run(find("any text of a client")) == "default"


def test_documents_can_be_ingested_with_a_profile_that_answers_elsewhere() -> None:
    profiles = serve_profiles(Builder(), {"slow": "no GPU"})
    assert profiles.names == ["default", "fast"]
    settings_for_slow = profiles.settings_for_ingestion("slow")
    assert settings_for_slow is not None
    assert settings_for_slow.profile == "slow"
    assert profiles.settings_for_ingestion("nowhere") is None
    assert profiles.names_for_ingestion == list(NAMES)


def test_preloaded_profiles_are_in_memory_before_the_first_request() -> None:
    builder = Builder()
    profiles = serve_profiles(builder)
    profiles.load(["fast"])
    assert (builder.built, profiles.built_names) == (["fast"], ["default", "fast"])
    with pytest.raises(UsageError, match="profile must be one of"):
        profiles.load(["nowhere"])


def test_a_reload_keeps_equal_profiles_and_builds_the_changed_ones_that_were_in_use() -> None:
    earlier = serve_profiles(Builder())
    earlier.load(["fast"])
    builder = Builder()
    same = serve_profiles(builder)
    same.reuse(earlier)
    assert (builder.built, same.built_names) == ([], ["default", "fast"])
    changed = {"fast": settings("fast", "answering.depth=7"), "slow": settings("slow")}
    later = ServedProfiles(services(settings("default")), changed, builder)
    later.reuse(earlier)
    assert builder.built == ["fast"]
    assert asyncio.run(later.find("fast")).services.settings.answering.depth == 7


@pytest.mark.parametrize("error", [ModelError("missing"), ConfigError("a leg requires a section")])
def test_a_changed_profile_that_cannot_be_loaded_does_not_stop_the_reload(error: RagError) -> None:
    earlier = serve_profiles(Builder())
    earlier.load(["fast"])
    changed = {"fast": settings("fast", "answering.depth=7")}
    later = ServedProfiles(services(settings("default")), changed, Builder(error=error))
    later.reuse(earlier)
    assert later.built_names == ["default"]
    with pytest.raises(type(error)):
        asyncio.run(later.find("fast"))
