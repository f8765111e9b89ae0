"""The chart's pods have no more rights than they need, and everything that they refer to exists."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest
from charts import (
    EXAMPLES,
    all_pods,
    cluster_specs,
    containers,
    example_files,
    matches,
    pod_templates,
    render_example,
    select_kind,
    variables,
)

from tools.render_chart import read_values, render_documents

each_example = pytest.mark.parametrize("name", EXAMPLES)
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
}
SECRET_NAME = re.compile(r"(TOKEN|PASSWORD|SECRET|KEY)(?!_PATH)")
WRITABLE = ("/tmp", "/var/lib/rag", "/dev/shm")  # noqa: S108
OWN_LABELS = {"app.kubernetes.io/part-of": "rag-on-ray", "app.kubernetes.io/instance": "rag"}


@each_example
def test_pods_run_without_root_and_privileges(name: str) -> None:
    for pod in all_pods(name):
        security = pod["spec"]["securityContext"]
        assert (security["runAsNonRoot"], security["runAsUser"], security["fsGroup"]) == (True, 10001, 10001)
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod["spec"].keys()
        assert not any("hostPath" in volume for volume in pod["spec"]["volumes"])
    autoscalers = [spec["autoscalerOptions"] for document in render_example(name) for spec in cluster_specs(document)]
    for container in (*containers(name), *autoscalers):
        assert container["securityContext"] == CONTAINER_SECURITY
        assert not any(variable["name"] == "PATH" for variable in container["env"])


@each_example
def test_containers_have_fixed_images_requests_and_limits(name: str) -> None:
    for container in containers(name):
        assert ":" in container["image"]
        assert not container["image"].endswith(":latest")
        resources = container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys() & resources["limits"].keys()
        assert resources["requests"]["memory"] == resources["limits"]["memory"]


@each_example
def test_ray_nodes_have_probes_and_can_write_where_they_must(name: str) -> None:
    for document in render_example(name):
        for spec in cluster_specs(document):
            for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
                [container] = group["template"]["spec"]["containers"]
                assert {"livenessProbe", "readinessProbe", "lifecycle"} <= container.keys()
                mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
                assert not any(mounts[path].get("readOnly") for path in WRITABLE)
                assert mounts["/run/secrets/rag"]["readOnly"]
            assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


@each_example
def test_only_the_autoscaler_gets_a_token_of_kubernetes(name: str) -> None:
    accounts = {account["metadata"]["name"]: account for account in select_kind(name, "ServiceAccount")}
    assert not any(account["automountServiceAccountToken"] for account in accounts.values())
    for pod in all_pods(name):
        assert pod["spec"]["serviceAccountName"] in accounts
        assert pod["spec"]["automountServiceAccountToken"] is False
        for container in pod["spec"]["containers"]:
            assert not any(mount["name"] == "kubernetes-token" for mount in container["volumeMounts"])
    for document in render_example(name):
        for spec in cluster_specs(document):
            [head] = [spec["headGroupSpec"]["template"]["spec"]]
            assert "kubernetes-token" in {volume["name"] for volume in head["volumes"]}
            assert "kubernetes-token" in {mount["name"] for mount in spec["autoscalerOptions"]["volumeMounts"]}


@each_example
def test_whatever_a_pod_refers_to_exists(name: str) -> None:
    values = read_values(example_files(name))
    secrets = {values["store"]["existingSecret"], values["rayToken"]["existingSecret"]}
    secrets |= {*values["secretFiles"], *values["secretEnvironment"], *values["image"].get("pullSecrets", [])}
    maps = {document["metadata"]["name"] for document in select_kind(name, "ConfigMap")} | {"kube-root-ca.crt"}
    claims = {document["metadata"]["name"] for document in select_kind(name, "PersistentVolumeClaim")}
    claims |= {values["sources"].get("existingClaim"), values["models"]["existingClaim"]}
    assert select_kind(name, "Secret") == []
    for pod in all_pods(name):
        references = list(find_references(pod["spec"]))
        assert {value for kind, value in references if kind == "secret"} <= secrets
        assert {value for kind, value in references if kind == "configMap"} <= maps
        assert {value for kind, value in references if kind == "claim"} <= claims
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        for container in pod["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


@each_example
def test_files_that_variables_name_are_mounted(name: str) -> None:
    for pod in all_pods(name):
        [container] = pod["spec"]["containers"]
        values = [variable.get("value", "").removeprefix("file:") for variable in container["env"]]
        assert {value for value in values if value.startswith("/run/")} <= set(list_secret_files(pod["spec"]))
        assert "/run/secrets/rag/dsn" in values
        for mount in container["volumeMounts"]:
            if mount["name"] == "settings":
                [settings] = select_kind(name, "ConfigMap")
                assert (mount["mountPath"], list(settings["data"])) == ("/etc/rag", ["settings.yaml"])


def list_secret_files(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yields the paths of the keys of Secrets that the pod mounts by name."""
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    for volume in pod["volumes"]:
        for source in volume.get("projected", {}).get("sources", []):
            for key in source.get("secret", {}).get("items", []):
                yield f"{mounts[volume['name']]}/{key['path']}"


def find_references(value: object) -> Iterator[tuple[str, str]]:
    """Yields the kind and the name of each Secret, ConfigMap and claim that a part of a pod names."""
    if isinstance(value, list):
        for member in value:
            yield from find_references(member)
    elif isinstance(value, Mapping):
        for key, member in value.items():
            if key in ("secret", "secretKeyRef", "secretRef"):
                yield "secret", member.get("name") or member["secretName"]
            elif key in ("configMap", "configMapKeyRef", "configMapRef"):
                yield "configMap", member["name"]
            elif key == "persistentVolumeClaim":
                yield "claim", member["claimName"]
            elif key == "imagePullSecrets":
                yield from (("secret", reference["name"]) for reference in member)
            else:
                yield from find_references(member)


@each_example
def test_policies_and_budgets_select_pods_that_exist(name: str) -> None:
    labels = [pod["metadata"]["labels"] for pod in all_pods(name)]
    for budget in select_kind(name, "PodDisruptionBudget"):
        assert any(matches(budget["spec"]["selector"], pod) for pod in labels)
    for policy in select_kind(name, "NetworkPolicy"):
        assert any(matches(policy["spec"]["podSelector"], pod) for pod in labels)
    for pod in all_pods(name):
        for constraint in pod["spec"].get("topologySpreadConstraints", []):
            assert matches(constraint["labelSelector"], pod["metadata"]["labels"])


@each_example
def test_a_budget_allows_the_eviction_of_a_pod(name: str) -> None:
    """Kubernetes evaluates only a number as `minAvailable`, because a RayCluster has no subresource `scale`."""
    services = [document["spec"]["rayClusterConfig"] for document in select_kind(name, "RayService")]
    least = {group["groupName"]: group["minReplicas"] for spec in services for group in spec["workerGroupSpecs"]}
    budgets = [document["spec"] for document in select_kind(name, "PodDisruptionBudget")]
    assert len(budgets) == (0 if name in ("trial", "job-only") else 1)
    for budget in budgets:
        assert "maxUnavailable" not in budget
        group = budget["selector"]["matchLabels"]["rag-on-ray/group"]
        assert 1 <= budget["minAvailable"] < least[group]


def read_policies(name: str) -> dict[str, Any]:
    """The specs of the network policies, by name."""
    return {policy["metadata"]["name"]: policy["spec"] for policy in select_kind(name, "NetworkPolicy")}


@each_example
def test_every_pod_is_denied_what_no_policy_allows(name: str) -> None:
    [deny] = [
        policy["spec"] for policy in select_kind(name, "NetworkPolicy") if policy["metadata"]["name"] == "rag-deny"
    ]
    assert "ingress" not in deny
    assert "egress" not in deny
    assert all(matches(deny["podSelector"], pod["metadata"]["labels"]) for pod in all_pods(name))


def test_clients_reach_the_gateways_only_at_their_port_and_from_labelled_namespaces() -> None:
    [policy] = [
        policy["spec"] for policy in select_kind("gpu", "NetworkPolicy") if policy["metadata"]["name"] == "rag-gateways"
    ]
    assert policy["ingress"] == [
        {
            "from": [{"namespaceSelector": {"matchLabels": {"rag-on-ray/client": "true"}}}],
            "ports": [{"protocol": "TCP", "port": 8000}],
        }
    ]
    groups = {pod["metadata"]["labels"].get("rag-on-ray/group"): pod["metadata"]["labels"] for pod in all_pods("gpu")}
    assert {group for group, labels in groups.items() if matches(policy["podSelector"], labels)} == {"cpu", "gpu"}


def test_the_sockets_of_nodes_are_open_to_nodes_of_the_release_alone() -> None:
    """Whoever reaches Ray's ports can run code."""
    rules = [rule for policy in read_policies("full").values() for rule in policy.get("ingress", [])]
    assert [rule for rule in rules if "ports" not in rule] == [{"from": [{"podSelector": {"matchLabels": OWN_LABELS}}]}]
    ports = {port["port"] for rule in rules for port in rule.get("ports", [])}
    assert ports == {8000, 8080, 8265}


def test_without_peers_nobody_is_allowed() -> None:
    """Kubernetes reads an empty `from` as everybody."""
    render_example("default")
    values = read_values((), [f"networkPolicy.{peers}=[]" for peers in ("clients", "operator", "monitoring", "dns")])
    policies = [policy["spec"] for policy in render_documents(values) if policy["kind"] == "NetworkPolicy"]
    rules = [rule for policy in policies for rule in policy.get("ingress", [])]
    assert rules == [{"from": [{"podSelector": {"matchLabels": OWN_LABELS}}]}]
    assert not any(rule.get("to") == [] for policy in policies for rule in policy.get("egress", []))


def test_pods_reach_the_endpoints_of_their_variables() -> None:
    rules = [rule for policy in read_policies("full").values() for rule in policy.get("egress", [])]
    ports = {port["port"] for rule in rules for port in rule.get("ports", [])}
    endpoints = [value for value in variables("full").values() if value.startswith("http")]
    assert {urlsplit(endpoint).port for endpoint in endpoints} - {8265} == {4318}
    assert 4318 in ports


@each_example
def test_no_secret_is_in_a_manifest(name: str) -> None:
    for document in render_example(name):
        for template in pod_templates(document):
            for container in template["spec"]["containers"]:
                for variable in container.get("env", []):
                    if SECRET_NAME.search(variable["name"]):
                        assert "valueFrom" in variable
