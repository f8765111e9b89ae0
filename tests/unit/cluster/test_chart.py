"""The chart's manifests are valid, and set only what Kubernetes, KubeRay, Ray Serve and the settings know."""

import gzip
import json
import os
import re
import shlex
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import ray
import yaml
from charts import (
    CHART,
    EXAMPLES,
    all_pods,
    cluster_specs,
    example_files,
    matches,
    pod_templates,
    render_example,
    select_kind,
    variables,
)
from documents import ROOT, check_rag
from jsonschema import Draft7Validator
from ray_kinds import MAX_NAME, NAME, RAY_KINDS

import rag_core
from jobs.ray_connection import RAY_ENVIRONMENT
from rag_core.errors import ConfigError
from rag_core.settings import load_settings
from rag_core.settings_schema import file_schema
from tools.render_chart import read_values, render, render_documents

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own code causes the warnings
    from ray.scripts.scripts import drain_node

    from serve.shape.config import BUILDER, parse_serve_config
    from serve.shape.local import PROXY_ENVIRONMENT

KUBERNETES = ("1.30", pytest.param("1.34", marks=pytest.mark.slow))
"""The oldest version that the chart supports, and a recent one."""

CRDS = Path(os.environ.get("RAG_KUBERAY_CRDS", ROOT.parent / "shared" / "data" / "kuberay"))
"""The folder of KubeRay's custom resource definitions, as the operator's release has them. Read before the fixtures
remove the variables of the developer."""

RAY_STOP_SECONDS = 30
"""How long `ray stop` waits for the raylet before it kills it."""

PROMETHEUS_OPERATOR = ("PodMonitor", "PrometheusRule")
each_example = pytest.mark.parametrize("name", EXAMPLES)


@each_example
@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_every_key_of_its_own_kinds_and_of_all_pods(name: str, version: str) -> None:
    core = [document for document in render_example(name) if document["kind"] not in (*RAY_KINDS, *PROMETHEUS_OPERATOR)]
    pods = [
        {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": pod["metadata"] | {"name": "x"}}
        for pod in all_pods(name)
    ]
    assert len(core) >= 3
    assert len(pods) >= 3
    for document in (*core, *({**pod, "metadata": {"name": "pod", **pod["metadata"]}} for pod in pods)):
        kubernetes_validate.validate(document, version, strict=True)


@each_example
def test_ray_kinds_have_no_unknown_key(name: str) -> None:
    kinds = [document for document in render_example(name) if document["kind"] in RAY_KINDS]
    assert kinds
    for document in kinds:
        assert document["apiVersion"] == "ray.io/v1"
        RAY_KINDS[document["kind"]].model_validate(document["spec"])
        assert re.fullmatch(NAME, document["metadata"]["name"])
        assert len(document["metadata"]["name"]) <= MAX_NAME


@pytest.mark.slow
@pytest.mark.skipif(not CRDS.is_dir(), reason=f"needs KubeRay's definitions in {CRDS}: set RAG_KUBERAY_CRDS")
@each_example
def test_ray_kinds_are_what_kuberay_accepts(name: str) -> None:
    for document in render_example(name):
        if document["kind"] in RAY_KINDS:
            errors = list(Draft7Validator(read_definition(document["kind"])).iter_errors(document))
            assert [f"{error.json_path}: {error.message}" for error in errors] == []


@lru_cache
def read_definition(kind: str) -> dict[str, Any]:
    """The schema of version v1, in which an unknown key is an error."""
    [file] = CRDS.glob(f"*{kind.lower()}s.yaml*")
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    versions = yaml.load(text, yaml.CSafeLoader)["spec"]["versions"]
    schema: dict[str, Any] = next(version for version in versions if version["name"] == "v1")["schema"]
    return forbid_unknown_keys(schema["openAPIV3Schema"])


def forbid_unknown_keys(schema: Mapping[str, Any]) -> dict[str, Any]:
    converted = dict(schema)
    if "properties" in schema:
        converted["properties"] = {key: forbid_unknown_keys(member) for key, member in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            converted["additionalProperties"] = schema["properties"].keys() == {"apiVersion", "kind", "metadata"}
    if isinstance(schema.get("items"), dict):
        converted["items"] = forbid_unknown_keys(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        converted["additionalProperties"] = forbid_unknown_keys(schema["additionalProperties"])
    return converted


@each_example
def test_the_serve_config_and_the_settings_are_valid(name: str, tmp_path: Path) -> None:
    """Each gateway reads the ConfigMap's file; here it is in a folder of the test."""
    file = write_settings(name, tmp_path)
    for document in select_kind(name, "RayService"):
        config = yaml.safe_load(document["spec"]["serveConfigV2"])
        [application] = config["applications"]
        assert application["import_path"] == BUILDER
        assert application["args"]["config"] == "/etc/rag/settings.yaml"
        application["args"]["config"] = str(file)
        parse_serve_config(config)


def write_settings(name: str, folder: Path) -> Path:
    [document] = select_kind(name, "ConfigMap")
    file = folder / "settings.yaml"
    file.write_text(document["data"]["settings.yaml"])
    return file


@each_example
def test_every_setting_of_the_chart_is_one_that_the_settings_know(name: str, tmp_path: Path) -> None:
    file = write_settings(name, tmp_path)
    Draft7Validator(file_schema()).validate(yaml.safe_load(file.read_text()))
    settings = load_settings(file, environment={**variables(name), "RAG_STORE__URL": "embedded"})
    assert settings.auth.mode in ("keys", "both")
    assert "rag-serve-svc.rag.svc" in settings.api.hosts
    assert {key for key in variables(name) if key.startswith("RAG_")} == {"RAG_HOME", "RAG_STORE__URL"}


def test_a_misspelled_setting_is_found(tmp_path: Path) -> None:
    """The check above can fail."""
    file = write_settings("full", tmp_path)
    file.write_text(file.read_text().replace("allowed_locations", "allowed_location"))
    with pytest.raises(ConfigError, match="allowed_location"):
        load_settings(file, environment={})


def test_the_hosts_of_a_user_are_added_to_those_of_the_service(tmp_path: Path) -> None:
    settings = load_settings(write_settings("full", tmp_path), environment={})
    assert settings.api.hosts[0] == "rag-serve-svc"
    assert settings.api.hosts[-1] == "rag.example.org"


@each_example
def test_the_object_store_of_a_node_fits_its_shared_memory(name: str) -> None:
    """Ray would otherwise store objects on the disk."""
    for document in render_example(name):
        for spec in cluster_specs(document):
            for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
                [volume] = [
                    volume["emptyDir"]["sizeLimit"]
                    for volume in group["template"]["spec"]["volumes"]
                    if volume["name"] == "shared-memory"
                ]
                size = int(volume.removesuffix("Gi")) * 2**30
                assert 200e6 < int(group["rayStartParams"]["object-store-memory"]) < 0.95 * size


@each_example
def test_all_nodes_have_the_variables_that_rag_serve_and_jobs_set(name: str) -> None:
    expected = {**PROXY_ENVIRONMENT, **RAY_ENVIRONMENT}
    del expected["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"]  # would keep other nodes out
    for document in render_example(name):
        for spec in cluster_specs(document):
            for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
                [container] = group["template"]["spec"]["containers"]
                values = {variable["name"]: variable.get("value") for variable in container["env"]}
                assert expected.items() <= values.items()


def test_versions_are_those_of_the_project_and_of_ray() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == rag_core.__version__
    specs = [spec for document in render_example("full") for spec in cluster_specs(document)]
    assert {spec["rayVersion"] for spec in specs} == {ray.__version__}


@pytest.mark.parametrize("name", ["default", "gpu", "trial", "full"])
def test_the_replicas_of_all_deployments_fit_the_workers(name: str) -> None:
    """GPUs and CPUs suffice at the minimum, at the maximum, and while all replicas of the minimum are replaced."""
    [document] = select_kind(name, "RayService")
    [application] = yaml.safe_load(document["spec"]["serveConfigV2"])["applications"]
    groups = document["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    demands = list_demands(application)
    for resource in ("cpu", "nvidia.com/gpu"):
        supply = sum(group["maxReplicas"] * float(group_limits(group).get(resource, 0)) for group in groups)
        assert sum(demand["max"] * demand[resource] for demand in demands) <= supply
        assert sum(demand["peak"] * demand[resource] for demand in demands) <= supply
    gateways = next(group for group in groups if group["groupName"] == "cpu")
    smallest = sum(demand["min"] * demand["cpu"] for demand in demands if not demand["nvidia.com/gpu"])
    assert smallest <= gateways["minReplicas"] * float(group_limits(gateways)["cpu"])


def group_limits(group: Mapping[str, Any]) -> dict[str, str]:
    limits: dict[str, str] = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    return limits


def list_demands(application: Mapping[str, Any]) -> list[dict[str, float]]:
    """What a replica of each deployment needs, and the limits of their number."""
    generator = application["args"].get("generator")
    demands = [{"cpu": 1.0, "nvidia.com/gpu": 1.0, **replica_limits(generator)}] if generator else []
    for deployment in application["deployments"]:
        options = deployment["ray_actor_options"]
        demand = {"cpu": options["num_cpus"], "nvidia.com/gpu": options.get("num_gpus", 0)}
        limits = replica_limits(deployment.get("autoscaling_config", {}))
        surge = limits["min"] * (1 + deployment.get("max_surge_percent", 0) / 100)
        demands.append(demand | limits | {"peak": surge})
    return demands


def replica_limits(autoscaling: Mapping[str, Any]) -> dict[str, float]:
    least = autoscaling.get("min_replicas", 1)
    return {"min": least, "peak": least, "max": autoscaling.get("max_replicas", 1)}


@each_example
def test_the_head_names_the_port_from_which_kuberay_makes_the_service(name: str) -> None:
    for document in select_kind(name, "RayService"):
        config = yaml.safe_load(document["spec"]["serveConfigV2"])
        spec = document["spec"]["rayClusterConfig"]
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            ports = {
                port["name"]: port["containerPort"] for port in group["template"]["spec"]["containers"][0]["ports"]
            }
            assert ports["serve"] == config["http_options"]["port"]


def test_a_pod_with_replicas_drains_before_it_stops() -> None:
    [document] = select_kind("gpu", "RayService")
    spec = document["spec"]["rayClusterConfig"]
    for group in spec["workerGroupSpecs"]:
        pod = group["template"]["spec"]
        shell, option, script = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert (shell, option) == ("bash", "-c")
        drain, _, stop = script.partition(" && ")
        assert stop == "sleep 100; ray stop"
        assert pod["terminationGracePeriodSeconds"] > 40 + 100 + RAY_STOP_SECONDS
        words = shlex.split(drain)
        assert words[:4] == ["timeout", "40", "ray", "drain-node"]
        context = drain_node.make_context("drain-node", words[4:])
        assert context.params["deadline_remaining_seconds"] == 100
        assert context.params["reason"] == "DRAIN_NODE_REASON_PREEMPTION"
    head = spec["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert head["lifecycle"]["preStop"]["exec"]["command"] == ["ray", "stop"]


def test_the_models_on_gpus_are_deployed_as_in_the_serve_config() -> None:
    shipped = yaml.safe_load((ROOT / "cluster" / "serve" / "gpu.yaml").read_text())["applications"][0]
    [document] = select_kind("gpu", "RayService")
    [application] = yaml.safe_load(document["spec"]["serveConfigV2"])["applications"]
    deployments = {deployment["name"]: deployment for deployment in application["deployments"]}
    for deployment in shipped["deployments"]:
        assert (
            deployments[deployment["name"]].items()
            >= {key: value for key, value in deployment.items() if key != "autoscaling_config"}.items()
        )
    assert application["args"]["generator"] == shipped["args"]["generator"]
    assert application["args"]["deployments"] == shipped["args"]["deployments"]
    [gpu] = [group for group in document["spec"]["rayClusterConfig"]["workerGroupSpecs"] if group["groupName"] == "gpu"]
    assert (gpu["minReplicas"], gpu["maxReplicas"]) == (0, 3)
    assert gpu["template"]["spec"]["containers"][0]["image"].endswith("-cuda")


def test_jobs_run_commands_that_exist() -> None:
    [run] = select_kind("jobs", "RayJob")
    assert run["spec"]["entrypoint"] == (
        "python -m jobs.ingest 's3://handbook/docs' '--collection' 'handbook' "
        "--config /etc/rag/settings.yaml --runner ray"
    )
    assert run["spec"]["clusterSelector"] == {"ray.io/cluster": "rag-jobs"}
    schedules = {document["metadata"]["name"]: document["spec"] for document in select_kind("jobs", "CronJob")}
    assert set(schedules) == {"rag-nightly", "rag-quality"}
    for schedule in schedules.values():
        [container] = schedule["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        *submit, program, option, module = container["command"][: container["command"].index("-m") + 2]
        assert submit[:4] == ["ray", "job", "submit", "--"]
        assert (program, option) == ("python", "-m")
        check_rag([module.removeprefix("jobs."), *container["command"][len(submit) + 3 :]])
        assert schedule["concurrencyPolicy"] == "Forbid"
    assert [document["metadata"]["name"] for document in select_kind("jobs", "RayCluster")] == ["rag-jobs"]


def test_a_job_ends_itself_before_kubernetes_ends_the_pod_that_follows_it() -> None:
    """The job would otherwise go on: it runs on the standing cluster, and not in that pod."""
    run = {"command": "ingest", "args": ["s3://a"], "activeDeadlineSeconds": 60}
    changes = [f"jobs.runs.first-ingest={json.dumps(run)}"]
    documents = render_documents(read_values([CHART / "examples" / "jobs.yaml"], changes))
    [quality] = [document["spec"] for document in documents if document["metadata"]["name"] == "rag-quality"]
    [load] = [document["spec"] for document in documents if document["kind"] == "RayJob"]
    command = quality["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[4:8] == ["timeout", "--foreground", "--kill-after=300", "14400"]
    assert quality["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 14400 + 300
    assert load["entrypoint"].startswith("timeout --foreground --kill-after=300 60 python -m jobs.ingest ")
    assert load["activeDeadlineSeconds"] > 60 + 300


@pytest.mark.parametrize("name", ["jobs", "job-only", "full"])
def test_a_job_finds_workers_when_it_starts(name: str) -> None:
    """It uses the CPUs that its cluster has then, and refuses `--gpus` of a cluster with fewer."""
    for document in (*select_kind(name, "RayCluster"), *select_kind(name, "RayJob")):
        for spec in cluster_specs(document):
            least = {group["groupName"]: group["minReplicas"] for group in spec["workerGroupSpecs"]}
            most = {group["groupName"]: group["maxReplicas"] for group in spec["workerGroupSpecs"]}
            assert least["cpu"] >= 1
            if document["kind"] == "RayJob":
                assert least == most
                assert least.get("gpu", 0) == document["spec"]["entrypoint"].count("'--gpus' '1'")


def test_a_run_has_another_name_when_its_definition_changes() -> None:
    first = {"jobs": {"runs": {"load": {"command": "ingest", "args": ["s3://a"]}}}}
    other = {**first, "image": {"tag": "2"}}
    names = {name_of_run(first), name_of_run(first), name_of_run(other)}
    assert len(names) == 2
    assert all(name.startswith("rag-load-") for name in names)


def name_of_run(changes: Mapping[str, Any]) -> str:
    assignments = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
    documents = render_documents(read_values((), assignments))
    [name] = [document["metadata"]["name"] for document in documents if document["kind"] == "RayJob"]
    return str(name)


def test_the_longest_name_of_a_run_is_one_that_kuberay_accepts() -> None:
    runs = {"a" * 12: {"command": "ingest", "args": ["s3://a"]}}
    manifests = render(read_values((), [f"jobs.runs={json.dumps(runs)}"]), "r" * 24)
    [run] = [manifest for manifest in yaml.safe_load_all(manifests) if manifest and manifest["kind"] == "RayJob"]
    assert len(run["metadata"]["name"]) == 46


def test_shell_characters_of_an_argument_stay_in_it() -> None:
    runs = {"load": {"command": "ingest", "args": ["s3://a/it's $HOME"]}}
    [document] = [
        document
        for document in render_documents(read_values((), [f"jobs.runs={json.dumps(runs)}"]))
        if document["kind"] == "RayJob"
    ]
    assert "'s3://a/it'\\''s $HOME'" in document["spec"]["entrypoint"]


def test_rules_are_those_of_the_repository() -> None:
    """The chart holds links to them."""
    rules = {rule["metadata"]["name"]: rule["spec"] for rule in select_kind("full", "PrometheusRule")}
    files = (ROOT / "cluster" / "prometheus" / "rules").glob("*.yaml")
    assert rules == {f"rag-{file.stem}": yaml.safe_load(file.read_text()) for file in files}


def test_monitored_metrics_have_the_names_that_rules_and_dashboards_use() -> None:
    """Prometheus itself and its operator spell the keys differently."""
    [monitor] = select_kind("full", "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    config = yaml.safe_load((ROOT / "cluster" / "prometheus" / "prometheus.yaml").read_text())
    ray = next(job for job in config["scrape_configs"] if job["job_name"] == "ray")
    spelled = {"source_labels": "sourceLabels", "target_label": "targetLabel"}
    relabelings = [
        {spelled.get(key, key): value for key, value in rule.items()} for rule in ray["metric_relabel_configs"]
    ]
    assert endpoint["metricRelabelings"] == relabelings
    assert endpoint["interval"] == config["global"]["scrape_interval"]
    pods = [pod for pod in all_pods("full") if matches(monitor["spec"]["selector"], pod["metadata"]["labels"])]
    ports = [port["name"] for pod in pods for port in pod["spec"]["containers"][0].get("ports", [])]
    assert ports.count(endpoint["port"]) >= 4


def test_the_notes_name_the_service_and_the_namespace() -> None:
    notes = render(read_values(), "handbook", "docs", notes=True)
    assert "kubectl --namespace docs port-forward service/handbook-serve-svc 8000" in notes
    assert "{{" not in notes


def test_every_file_of_examples_is_tested() -> None:
    assert {file for name in EXAMPLES for file in example_files(name)} == set((CHART / "examples").glob("*.yaml"))


def test_every_kind_that_starts_pods_is_looked_into() -> None:
    """No manifest has a pod that the other checks miss."""
    for name in EXAMPLES:
        for document in render_example(name):
            assert json.dumps(document).count('"containers":') == len(list(pod_templates(document)))
