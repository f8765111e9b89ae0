"""Serve configs are checked: the message names the place of every kind of error."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import rag_in_process

from rag_core.config import Settings
from rag_core.errors import ConfigError
from rag_core.settings import load_settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Ray's own making
    from fakes.shapes import ENGINE
    from ray.serve._private.build_app import build_app

    from serve.app import build, build_application
    from serve.gateway_settings import GatewaySettings
    from serve.shape.arguments import Arguments, Parts, deployment_names, settings_from_arguments
    from serve.shape.config import is_serve_config, parse_serve_config, read_serve_config
    from serve.shape.local import serve_from_config

SHIPPED = Path(__file__).parents[4] / "cluster" / "serve"
WRITING = ("generation.type=openai", "generation.model=tiny")


def document(name: str = "gpu") -> dict[str, Any]:
    shipped: dict[str, Any] = yaml.safe_load((SHIPPED / f"{name}.yaml").read_text())
    return shipped


def application_of(shape: dict[str, Any]) -> dict[str, Any]:
    only: dict[str, Any] = shape["applications"][0]
    return only


def deployment_of(shape: dict[str, Any], name: str) -> dict[str, Any]:
    return next(deployment for deployment in application_of(shape)["deployments"] if deployment["name"] == name)


def refusal(shape: object) -> str:
    with pytest.raises(ConfigError) as refused:
        parse_serve_config(shape)
    return str(refused.value)


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_PROFILE", "")


@pytest.mark.parametrize("name", ["local", "gpu"])
def test_the_shipped_shapes_are_valid_for_serve_and_for_us(name: str) -> None:
    shape = read_serve_config(SHIPPED / f"{name}.yaml")
    assert shape.http_options.host == "127.0.0.1"
    assert [application.import_path for application in shape.applications] == ["serve.app:build"]


def test_the_gpu_shape_shares_one_gpu_among_all_replicas_of_its_small_models() -> None:
    small = [deployment for deployment in application_of(document())["deployments"] if deployment["name"] != "Gateway"]
    most = sum(
        deployment["ray_actor_options"]["num_gpus"] * deployment["autoscaling_config"]["max_replicas"]
        for deployment in small
    )
    assert most == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("place", "key", "near"),
    [
        ((), "http_option", "did you mean http_options?"),
        (("http_options",), "hosts", "did you mean host?"),
        (("applications", 0), "import_paths", "did you mean import_path?"),
        (("applications", 0, "args"), "generators", "unknown key"),
        (("applications", 0, "args", "generator"), "replicas", "unknown key"),
        (("applications", 0, "deployments", 1), "num_replicass", "did you mean num_replicas?"),
        (("applications", 0, "deployments", 1, "ray_actor_options"), "num_gpu", "did you mean num_gpus?"),
        (("applications", 0, "deployments", 1, "autoscaling_config"), "max_replica", "did you mean max_replicas?"),
        (("applications", 0, "deployments", 0, "user_config"), "sets", "unknown key"),
        (("applications", 0, "deployments", 1, "user_config"), "token", "unknown key"),
        (("logging_config",), "log_levels", "did you mean log_level?"),
    ],
)
def test_a_key_that_nobody_knows_is_named_with_its_place(place: tuple[str | int, ...], key: str, near: str) -> None:
    shape: Any = document()
    inner = shape
    for part in place:
        inner = inner[part]
    inner[key] = 1
    message = refusal(shape)
    assert key in message
    assert near in message
    for part in place:
        assert str(part) in message


def test_every_unknown_key_is_reported_at_once() -> None:
    shape = document()
    shape["http_options"]["prt"] = 1
    deployment_of(shape, "Judge")["max_ongoing_request"] = 1
    assert refusal(shape).splitlines() == [
        "http_options: unknown key prt; did you mean port?",
        "applications[0].deployments[3]: unknown key max_ongoing_request; did you mean max_ongoing_requests?",
    ]


def test_a_value_of_another_kind_is_refused_with_its_place() -> None:
    shape = document()
    deployment_of(shape, "Reranker")["max_ongoing_requests"] = "many"
    assert refusal(shape).startswith("applications[0].deployments[2].max_ongoing_requests: ")
    assert "many" in refusal(shape)


@pytest.mark.parametrize("shape", [None, [], "applications", 7])
def test_a_file_that_is_not_a_mapping_is_not_a_shape(shape: object) -> None:
    assert refusal(shape).startswith("the file must be a mapping with the key applications, got ")


def test_a_deployment_must_be_one_that_the_arguments_ask_for() -> None:
    shape = document()
    application_of(shape)["args"]["deployments"] = ["embedder", "judge"]
    assert refusal(shape) == (
        "applications[0].deployments[2].name must be a deployment of args"
        " (Gateway, Embedder, Judge, LLMServer:Qwen--Qwen2_5-7B-Instruct, IngestRunner), got Reranker"
    )


def test_a_duplicate_deployment_is_refused() -> None:
    shape = document()
    application_of(shape)["deployments"] *= 2
    assert refusal(shape).startswith(
        "applications[0].deployments: duplicate deployment Gateway, Embedder, Reranker, Judge"
    )


def test_a_change_that_needs_a_restart_is_not_a_user_config() -> None:
    shape = document()
    deployment_of(shape, "Gateway")["user_config"]["set"] = ["retrieval.depth=50", "embedding.model=other"]
    place, reason = refusal(shape).split(": ", 1)
    assert place == "applications[0].deployments[0]"
    assert reason == "cannot change while the gateway serves: embedding.model; restart it to change them"


def test_grpc_would_listen_on_every_interface() -> None:
    shape = document() | {"grpc_options": {"grpc_servicer_functions": ["acme.pb:add"]}}
    assert refusal(shape).endswith("grpc_options.grpc_servicer_functions must be empty, got acme.pb:add")


def test_other_applications_are_free_in_their_arguments() -> None:
    shape = document()
    shape["applications"].append({"name": "own", "route_prefix": "/own", "import_path": "acme:app", "args": {"x": 1}})
    assert len(parse_serve_config(shape).applications) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("applications:\n  - name: rag\n   bad: 1\n", "line 3: "),
        ("applications: []\nhttp_options: {port: 1, port: 2}\n", "line 2: duplicate key: port"),
        ("applications: [\n", "line 2: "),
        ("\tx: 1", "line 1: "),
    ],
)
def test_invalid_yaml_is_reported_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "shape.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_serve_config(file)
    assert f"{file}, {message}" in str(refused.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere\.yaml"):
        read_serve_config(tmp_path / "nowhere.yaml")


def test_a_refusal_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "shape.yaml"
    file.write_text(yaml.safe_dump(document() | {"applicationss": []}))
    with pytest.raises(ConfigError) as refused:
        read_serve_config(file)
    assert str(refused.value).startswith(f"{file}: the file: unknown key applicationss; did you mean applications?")


def test_a_serve_config_is_known_by_its_applications(tmp_path: Path) -> None:
    settings = tmp_path / "rag.yaml"
    settings.write_text("profile: default\n")
    assert not is_serve_config(settings)
    assert is_serve_config(SHIPPED / "local.yaml")


@pytest.mark.parametrize(
    ("parts", "overrides", "message"),
    [
        ({"deployments": ["reranker"]}, (), "a remote reranker must be the profile's only reranker, got 0"),
        ({"deployments": ["judge"]}, WRITING, "a remote judge must be of type cross_encoder"),
        (
            {"deployments": ["judge"]},
            ("guard.judge.type=cross_encoder", "guard.judge.model=m"),
            "answers of generation.type extractive are not judged",
        ),
        ({"generator": {"model": "tiny"}}, (), "a generator requires generation.type openai, got extractive"),
        ({"generator": {"model": "other"}}, WRITING, "generator.model must be generation.model, tiny, got other"),
    ],
)
def test_a_part_that_nothing_would_ask_is_refused(
    parts: dict[str, Any], overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_from_arguments(Arguments.model_validate({**parts, "set": overrides}))
    assert message in str(refused.value)


def test_the_names_of_deployments_are_those_of_the_built_application() -> None:
    arguments = Arguments.model_validate(application_of(document())["args"])
    built = build_app(
        build_application(GatewaySettings(own=settings_from_arguments(arguments)), arguments, ENGINE), name="rag"
    )
    assert sorted(deployment.name for deployment in built.deployments) == sorted(deployment_names(arguments))


def test_the_local_shape_is_the_gateway_and_what_takes_documents() -> None:
    arguments = Arguments.model_validate(application_of(document("local"))["args"])
    built = build_app(build(arguments), name="rag")
    assert sorted(deployment.name for deployment in built.deployments) == sorted(deployment_names(arguments))
    assert deployment_names(Parts(ingest=False)) == ["Gateway"]


def test_settings_of_a_shape_are_those_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "rag.yaml"
    file.write_text("answering: {depth: 7}\n")
    arguments = Arguments(config=str(file), set=("tenant=tenant-of-mine",))
    settings: Settings = settings_from_arguments(arguments)
    assert (settings.answering.depth, settings.tenant) == (7, "tenant-of-mine")
    assert settings.pipeline_version == load_settings(file, None, ["tenant=tenant-of-mine"]).pipeline_version


@pytest.mark.parametrize(
    ("change", "host", "got"),
    [
        ({"host": "0.0.0.0"}, "", "0.0.0.0"),  # noqa: S104
        ({}, "0.0.0.0", "0.0.0.0"),  # noqa: S104
        ({"host": "::"}, "", "::"),
    ],
)
def test_without_keys_no_shape_is_served_but_on_loopback(change: dict[str, str], host: str, got: str) -> None:
    shape = document("local")
    shape["http_options"] |= change
    refused = pytest.raises(ConfigError, match=f"host must be 127.0.0.1, got {got}$")
    with refused, serve_from_config(parse_serve_config(shape), host):
        pass


def test_a_shape_that_names_no_host_would_be_open_to_all() -> None:
    shape = document("local")
    del shape["http_options"]["host"]
    with (
        pytest.raises(ConfigError, match=r"host must be 127\.0\.0\.1, got 0\.0\.0\.0"),
        serve_from_config(parse_serve_config(shape)),
    ):
        pass


def test_options_that_a_serve_config_sets_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    shape = str(SHIPPED / "local.yaml")
    ran = rag_in_process(capfd)("serve", "--tenant", "tenant-of-mine", "--config", shape)
    assert ran.code == 2
    assert ran.err.endswith(
        f"error: --tenant cannot be used with the Serve config {shape}; set it in the `args` there\n"
    )
