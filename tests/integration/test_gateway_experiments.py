"""An experiment of the gateway: the split of conversations, what is stored, and the report on it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from commands import rag_in_process
from fakes.answering import ScriptedGenerator, ScriptedRetriever, passage
from fakes.serving import scripted_graph
from targets import superuser

from rag_core.config import ExperimentSettings, Settings, TelemetrySettings
from rag_core.errors import ConfigError, GenerationError, StoreError
from rag_core.settings import load_settings
from rag_core.storage.exposures import Exposure, Exposures, StoredExperiment
from rag_core.storage.postgres import Postgres
from rag_core.storage.retention import delete_old_rows
from rag_core.types import DEFAULT_TENANT
from serve.gateway import build_fastapi
from serve.gateway_settings import GatewaySettings
from serve.profiles import ServedProfiles, build_profiles
from serve.services import Services

pytestmark = pytest.mark.postgres

HITS = [passage(1, "Keys are replaced every 45 days.").hit]
EXPERIMENT = ExperimentSettings(name="fast-1", treatment="fast", share=0.4)


def settings(profile: str, experiment: ExperimentSettings | None = None) -> Settings:
    return load_settings(environment={}).model_copy(update={"profile": profile, "experiment": experiment})


def services(store: Postgres, profile_settings: Settings, error: Exception | None = None) -> Services:
    pieces = [] if error else ["Every 45 days [1]. "]
    generator = ScriptedGenerator(answers=[pieces] * 99, error=error)
    return replace(scripted_graph(ScriptedRetriever(hits=HITS), generator, postgres=store), settings=profile_settings)


def build(store: Postgres, error: Exception | None = None) -> ServedProfiles:
    """Two profiles, of which the treatment fails with `error` if there is one."""
    primary = services(store, settings("default", EXPERIMENT))
    return ServedProfiles(primary, {"fast": settings("fast")}, lambda other: services(store, other, error))


def send(profiles: ServedProfiles, method: str, path: str, bodies: Sequence[object]) -> list[httpx2.Response]:
    """Sends one request per body, as a caller of the default tenant, and closes the profiles."""

    async def run() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app=build_fastapi(profiles), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            responses = [await client.request(method, path, json=body) for body in bodies]
        for name in profiles.built_names:
            await (await profiles.find(name)).services.close()
        return responses

    return asyncio.run(run())


def ask(profiles: ServedProfiles, requests: Sequence[dict[str, Any]]) -> list[httpx2.Response]:
    return send(profiles, "POST", "/v1/answer", [{"question": "How often?", **body} for body in requests])


def get(profiles: ServedProfiles, path: str) -> httpx2.Response:
    (response,) = send(profiles, "GET", path, [None])
    return response


def conversations(count: int) -> list[dict[str, Any]]:
    return [{"conversation_id": f"c{number}"} for number in range(count)]


def answering_profile(response: httpx2.Response) -> str:
    return str(response.json()["pipeline_version"].partition(":")[0])


def count_variants(store: Postgres) -> Counter[tuple[str, str]]:
    """Counts the exposures by variant and error."""
    with store.connect() as connection:
        rows = Exposures(connection, DEFAULT_TENANT).read("fast-1")
        return Counter((exposure.variant, exposure.error) for exposure, _ in rows)


def test_conversations_are_split_between_two_profiles_and_the_exposures_are_stored(store: Postgres) -> None:
    profiles = [answering_profile(response) for response in ask(build(store), conversations(20))]
    counts = Counter(profiles)
    assert min(counts["default"], counts["fast"]) >= 4
    assert count_variants(store) == {("control", ""): counts["default"], ("treatment", ""): counts["fast"]}
    assert profiles == [answering_profile(response) for response in ask(build(store), conversations(20))]
    with store.connect() as connection:
        (stored,) = Exposures(connection, DEFAULT_TENANT).list_experiments()
    assert stored == StoredExperiment(name="fast-1", share=0.4, control=counts["default"], treatment=counts["fast"])


def test_a_request_that_names_its_profile_takes_no_part(store: Postgres) -> None:
    named = [{"profile": profile, **body} for profile in ("default", "fast") for body in conversations(3)]
    assert [answering_profile(response) for response in ask(build(store), named)] == ["default"] * 3 + ["fast"] * 3
    assert count_variants(store) == {}


def test_a_stream_and_a_failed_answer_are_exposures_too(store: Postgres) -> None:
    bodies = [{"stream": True, **body} for body in conversations(20)]
    ask(build(store, GenerationError("the endpoint is gone")), bodies)
    assert set(count_variants(store)) == {("control", ""), ("treatment", "GenerationError")}


def test_the_command_reports_on_the_stored_conversations_and_their_ratings(
    store: Postgres, capfd: pytest.CaptureFixture[str]
) -> None:
    answers = ask(build(store), conversations(20))
    ratings = [{"answer_id": answer.json()["id"], "rating": 1} for answer in answers[:10]]
    assert {response.status_code for response in send(build(store), "POST", "/v1/feedback", ratings)} == {201}
    report = rag_in_process(capfd)("experiment", "fast-1", "--store", store.dsn, "--json").json
    assert report["control"] + report["treatment"] == 20
    assert report["coverage"] == 0.5
    assert report["recommendation"].startswith("Continue")


def test_old_exposures_are_deleted(store: Postgres) -> None:
    exposures = {id: Exposure(experiment="old", variant="control", bucket=7, conversation=id) for id in ("a", "b")}
    with store.connect() as connection:
        Exposures(connection, DEFAULT_TENANT).add(exposures)
    with superuser(store) as connection:
        connection.execute("update exposures set created_at = now() - interval '31 days' where answer_id = 'a'")
    delete_old_rows(store, DEFAULT_TENANT, {"replies": 30})
    with store.connect() as connection:
        assert [row.conversation for row, _ in Exposures(connection, DEFAULT_TENANT).read("old")] == ["b"]


def test_exposures_do_not_wait_for_a_blocked_store_without_end(store: Postgres) -> None:
    exposure = Exposure(experiment="old", variant="control", bucket=7, conversation="c")
    with store.connect() as blocking, store.connect() as connection, blocking.transaction():
        blocking.execute("lock table exposures in exclusive mode")
        with pytest.raises(StoreError, match="statement timeout"):
            Exposures(connection, DEFAULT_TENANT).add({"ans_1": exposure}, timeout=0.1)


def test_experiments_are_listed_with_their_conversations(store: Postgres) -> None:
    exposures = {
        f"ans_{number}": Exposure(experiment="old", variant="control", bucket=7, conversation=str(number), share=0.1)
        for number in range(2)
    }
    with store.connect() as connection:
        Exposures(connection, DEFAULT_TENANT).add(exposures)
    first = get(build(store), "/v1/experiments?limit=1").json()
    none = {"control": 0, "treatment": 0}
    assert first["data"] == [{"name": "fast-1", "running": True, "share": 0.4, "conversations": none}]
    (last,) = get(build(store), f"/v1/experiments?cursor={first['next_cursor']}").json()["data"]
    assert last == {"name": "old", "running": False, "share": 0.1, "conversations": {"control": 2, "treatment": 0}}
    experiment = get(build(store), "/v1/experiments/old").json()
    assert experiment["report"] is None
    assert experiment["reason"].startswith("an experiment requires observations of control and treatment")


def test_an_assignment_is_the_one_that_answers_get(store: Postgres) -> None:
    answers = ask(build(store), conversations(6))
    report = get(build(store), "/v1/experiments/fast-1").json()["report"]
    assert report["control"] + report["treatment"] == 6
    for number, answer in enumerate(answers):
        assigned = get(build(store), f"/v1/experiments/fast-1/assignment?unit=c{number}").json()
        expected = {"default": "control", "fast": "treatment"}[answering_profile(answer)]
        assert (assigned["experiment"], assigned["unit"], assigned["variant"]) == ("fast-1", f"c{number}", expected)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/experiments/none", 404),
        ("/v1/experiments/none/assignment?unit=1", 404),
        ("/v1/experiments/fast-1/assignment", 422),
        ("/v1/experiments/fast-1/assignment?unit=", 422),
        ("/v1/experiments/fast-1?effect=0", 422),
        ("/v1/experiments?cursor=x", 422),
    ],
)
def test_other_requests_are_problems(store: Postgres, path: str, status: int) -> None:
    assert get(build(store), path).status_code == status


@pytest.mark.parametrize(
    ("treatment", "message"),
    [
        ("default", "experiment.treatment must be another profile than the gateway's own, got default"),
        ("quick", "experiment.treatment: profile must be one of default, fast, got 'quick'"),
    ],
)
def test_an_experiment_requires_another_served_profile(store: Postgres, treatment: str, message: str) -> None:
    class Resources:
        def build_services(self, profile_settings: Settings) -> Services:
            return services(store, profile_settings)

    primary_settings = settings("default", ExperimentSettings(name="x", treatment=treatment))
    with pytest.raises(ConfigError) as refused:
        build_profiles(GatewaySettings(own=primary_settings, others={"fast": settings("fast")}), Resources())  # type: ignore[arg-type]
    assert str(refused.value) == message


def test_an_experiment_requires_stored_answers_of_both_profiles(store: Postgres) -> None:
    treatment = settings("fast").model_copy(update={"telemetry": TelemetrySettings(replies=False)})

    class Resources:
        def build_services(self, profile_settings: Settings) -> Services:
            return services(store, profile_settings)

    gateway_settings = GatewaySettings(own=settings("default", EXPERIMENT), others={"fast": treatment})
    with pytest.raises(ConfigError, match=r"experiment requires telemetry\.replies, got false in profile fast"):
        build_profiles(gateway_settings, Resources())  # type: ignore[arg-type]
    overrides = ["experiment={name: x, treatment: fast}", "telemetry.replies=false"]
    with pytest.raises(ConfigError, match=r"experiment requires telemetry\.replies"):
        load_settings(environment={}, overrides=overrides)
