"""The schema of the chart's values, and the renderer of the checks."""

import json
import warnings
from typing import Any

import pytest
from charts import CHART, EXAMPLES, example_files, render_example
from jsonschema import Draft7Validator

from rag_core.errors import ConfigError
from tools.render_chart import main, merge, read_values, render

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own code causes the warnings
    from ray.serve.schema import DeploymentSchema


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("store.existingSekret=x", "store: Additional properties are not allowed ('existingSekret' was unexpected)"),
        ("settings.auth.mode=none", "settings.auth.mode: 'none' is not one of ['keys', 'jwt', 'both']"),
        ("image.tag=latest", "image.tag: 'latest' should not be valid under {'const': 'latest'}"),
        ("serve.deployments.Gateway.num_replicass=2", "serve.deployments.Gateway: Additional properties"),
        ("serve.workers.resources.memory=6", "serve.workers.resources.memory: 6 is not of type 'string'"),
        ("jobs.workers.sharedMemory=4096m", "jobs.workers.sharedMemory: '4096m' does not match"),
        ("rayToken.existingSecret=Token", "rayToken.existingSecret: 'Token' does not match"),
        ("jobs.runs={load: {command: rm, args: [x]}}", "jobs.runs.load.command: 'rm' is not one of"),
        ("jobs.schedules={n: {command: ingest, args: [x]}}", "jobs.schedules.n: 'schedule' is a required property"),
        ("networkPolicy.postgres.port=70000", "networkPolicy.postgres.port: 70000 is greater than the maximum"),
        ("environment.LOG-LEVEL=1", "environment: 'LOG-LEVEL' does not match"),
    ],
)
def test_a_wrong_value_is_refused_by_name(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read_values((), [assignment])
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("example", "assignment", "message"),
    [
        (
            "gpu",
            "serve.gpuWorkers.maxReplicas=0",
            "serve.deployments.Embedder needs a GPU: set serve.gpuWorkers.maxReplicas",
        ),
        ("default", "serve.args.generator={model: m}", "^serve.args.generator needs a GPU: set serve.gpuWorkers"),
        ("jobs", "jobs.cluster.enabled=false", "^jobs.schedules.nightly needs the standing cluster"),
        (
            "jobs",
            "jobs.runs.first-ingest.retries=2",
            "^jobs.runs.first-ingest.retries must be 0 with jobs.cluster.enabled",
        ),
        (
            "default",
            "serve.workers.minReplicas=6",
            "^minReplicas must be at most maxReplicas, got 6 and 5 for the group cpu",
        ),
        (
            "default",
            "serve.workers.minReplicas=1",
            "^disruptionBudget.minAvailable must be less than serve.workers.minReplicas, .* got 1 and 1",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(example: str, assignment: str, message: str) -> None:
    render_example(example)  # skips without Go
    with pytest.raises(ConfigError, match=message):
        render(read_values(example_files(example), [assignment]))


@pytest.mark.parametrize("release", ["1st", "a" * 25])
def test_a_name_that_kuberay_would_refuse_is_refused_first(release: str) -> None:
    render_example("default")
    with pytest.raises(ConfigError, match=f"must begin with a letter and have at most 24 characters, got {release}"):
        render(read_values(), release)


def test_the_schema_is_strict_and_knows_every_option_of_a_deployment() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    Draft7Validator.check_schema(schema)
    assert set(schema["$defs"]["deployment"]["properties"]) == set(DeploymentSchema.model_fields) - {"name"}
    assert set(schema["properties"]) - {"global"} == set(read_values())


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_valid(name: str) -> None:
    assert read_values(example_files(name)) != {}


@pytest.mark.parametrize(
    ("values", "changes", "merged"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": {"b": 1}, "c": 1}, {"a": None}, {"c": 1}),
        ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
    ],
)
def test_values_merge_as_in_helm(values: dict[str, Any], changes: dict[str, Any], merged: dict[str, Any]) -> None:
    assert merge(values, changes) == merged


def test_the_command_prints_manifests_and_refuses_wrong_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    render_example("default")
    monkeypatch.setattr("sys.argv", ["render_chart", "--release", "docs", "--set", "serve.enabled=false"])
    main()
    printed = capsys.readouterr().out
    assert "name: docs-settings" in printed
    assert "RayService" not in printed
    monkeypatch.setattr("sys.argv", ["render_chart", "--set", "serve"])
    with pytest.raises(SystemExit, match="--set must be KEY=VALUE, got serve"):
        main()
