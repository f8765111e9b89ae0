"""The gateway of the rendered chart, run as its pods would run it, until its node is drained."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from signal import SIGTERM
from typing import Any
from uuid import uuid4

import pytest
import yaml
from containers import needs_namespaces
from installed_release import InstalledRelease, install_release, render_manifests
from kubernetes_pods import RayPods, start_ray_pods
from waiting import wait_until

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.ray,
    pytest.mark.postgres,
    pytest.mark.timeout(900),
    needs_namespaces,
]

APPLICATIONS = "/api/serve/applications/"
DRAIN_SECONDS = 100
"""The time that a pod has before its process ends, for requests in progress."""


@pytest.fixture
def release(short_folder: Path) -> Iterator[InstalledRelease]:
    manifests = render_manifests("trial", "settings: {embedding: {type: hashing}}")
    with install_release(short_folder / f"pods-{uuid4().hex[:6]}", manifests, {}) as release:
        yield release


def test_a_pod_is_ready_while_it_serves_and_drains_before_it_ends(release: InstalledRelease) -> None:
    service = release.find("RayService", "rag")["spec"]
    ray = start_ray_pods(release.namespace, "rag", service["rayClusterConfig"])
    gateway, container = ray.workers[0], read_container(service)
    release.namespace.network.alias(gateway.address, "rag-serve-svc")

    def probe(name: str) -> int:
        request = container[name]["httpGet"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        return gateway.status(ports.get(request["port"], request["port"]), request["path"])

    wait_until(lambda: probe("livenessProbe") == 200, 300)
    assert probe("readinessProbe") == 0
    ray.request(APPLICATIONS, json.dumps(yaml.safe_load(service["serveConfigV2"])))
    wait_until(lambda: read_status(ray) == "RUNNING", 300)
    assert (probe("livenessProbe"), probe("readinessProbe")) == (200, 200)
    check = release.namespace.run("test", release.find("Pod", "rag-test-readyz"))
    assert check.wait() == 0, check.read_log()
    assert "true" in check.read_log()
    drain(ray, container["lifecycle"]["preStop"]["exec"]["command"])


def read_container(service: dict[str, Any]) -> dict[str, Any]:
    [group] = service["rayClusterConfig"]["workerGroupSpecs"]
    container: dict[str, Any] = group["template"]["spec"]["containers"][0]
    return container


def read_status(ray: RayPods) -> str:
    application = json.loads(ray.request(APPLICATIONS))["applications"].get("rag", {})
    assert application.get("status") != "DEPLOY_FAILED", application["message"]
    return str(application.get("status"))


def drain(ray: RayPods, hook: list[str]) -> None:
    """Asserts that the hook succeeds without its pause, and that the pod's process then ends upon SIGTERM."""
    *shell, script = hook
    assert f"sleep {DRAIN_SECONDS}" in script
    ran = ray.workers[0].execute(*shell, script.replace(f"sleep {DRAIN_SECONDS}", "echo drained"))
    assert ran.returncode == 0, shlex.join(hook) + ran.stdout + ran.stderr
    assert "drained" in ran.stdout
    assert "Stopped all" in ran.stdout
    ray.workers[0].send(SIGTERM)
    ray.workers[0].wait(120)
    assert "finished draining" in ray.workers[0].read_log()
