"""Pods of rendered manifests, run as containers on this machine, and what the KubeRay operator adds to those of Ray."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from containers import Container, ContainerSpec, Network, image_environment

GROUP = 10001
HEAD_PORT, DASHBOARD_PORT = 6379, 8265
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
OPERATOR_PARAMETERS = {"block": "true", "dashboard-agent-listen-port": "52365", "metrics-export-port": "8080"}
"""The options of `ray start` that the operator sets for every node."""
REQUEST = """
import os, sys, urllib.request
url, body = sys.argv[1:]
headers = {"Authorization": f"Bearer {os.environ['RAY_AUTH_TOKEN']}", "Content-Type": "application/json"}
request = urllib.request.Request(url, body.encode() or None, headers, method="PUT" if body else "GET")
print(urllib.request.urlopen(request, timeout=60).read().decode())
"""
_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """What the pods of a namespace use: `secrets` and `config_maps` by name and key, and the folders of `claims`."""

    network: Network
    secrets: Mapping[str, Mapping[str, str]]
    config_maps: Mapping[str, Mapping[str, str]]
    claims: Mapping[str, Path]

    def run(self, name: str, pod: Mapping[str, Any], **changes: Any) -> Container:
        """Starts the first container of a pod. `changes`: of `command`, `environment` or `address`."""
        spec, container = pod["spec"], pod["spec"]["containers"][0]
        volumes = {volume["name"]: self._make_volume(name, volume) for volume in spec["volumes"]}
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        _check_restrictions(spec, container)
        command = changes.get("command") or [*container["command"], *container.get("args", [])]
        return self.network.run(
            name,
            ContainerSpec(
                command=command,
                environment=self._environment(container) | changes.get("environment", {}),
                mounts={path: volumes[mount["name"]] for path, mount in mounts.items()},
                read_only=[path for path, mount in mounts.items() if mount.get("readOnly")],
                memory={"/dev/shm": "mode=1777,size=64m"} if "/dev/shm" not in mounts else {},  # noqa: S108
                user=spec["securityContext"]["runAsUser"],
            ),
            changes.get("address", ""),
        )

    def _environment(self, container: Mapping[str, Any]) -> dict[str, str]:
        environment = dict(image_environment())
        for source in container.get("envFrom", []):
            environment |= self.secrets[source["secretRef"]["name"]]
        return environment | {variable["name"]: variable["value"] for variable in container["env"]}

    def _make_volume(self, pod: str, volume: Mapping[str, Any]) -> Path:
        if claim := volume.get("persistentVolumeClaim"):
            return self.claims[claim["claimName"]]
        folder = self.network.folder / f"{pod}-{next(_numbers)}-{volume['name']}"
        folder.mkdir()
        for name, text in self._read_files(volume).items():
            (folder / name).write_text(text)
            (folder / name).chmod(volume.get("projected", {}).get("defaultMode", 0o644))
        for path in (folder, *folder.iterdir()):
            os.chown(path, 0, GROUP)
        folder.chmod(0o2777)
        return folder

    def _read_files(self, volume: Mapping[str, Any]) -> dict[str, str]:
        """The files of a volume with secrets or settings; those of the account of Kubernetes are left out."""
        files: dict[str, str] = {}
        if source := volume.get("configMap"):
            files |= self.config_maps[source["name"]]
        for part in volume.get("projected", {}).get("sources", []):
            if secret := part.get("secret"):
                keys = self.secrets[secret["name"]]
                items = secret.get("items") or [{"key": key, "path": key} for key in keys]
                files |= {item["path"]: keys[item["key"]] for item in items}
        return files


def _check_restrictions(spec: Mapping[str, Any], container: Mapping[str, Any]) -> None:
    """Asserts the restrictions that every container has on this machine, too."""
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not security["allowPrivilegeEscalation"]
    assert spec["securityContext"]["fsGroup"] == GROUP


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPods:
    """The pods of a Ray cluster as the operator starts them, from the `spec` of a RayCluster."""

    namespace: Namespace
    name: str
    spec: Mapping[str, Any]
    head: Container
    workers: Sequence[Container]

    @property
    def dashboard(self) -> str:
        return f"http://{self.name}-head-svc:{DASHBOARD_PORT}"

    def submit(self, manifest: Mapping[str, Any], submission: str = "") -> tuple[str, Container]:
        """Starts the pod that submits the job of a RayJob, with the command of the operator.

        Returns the id of the submission, which is new by default.
        """
        spec, submission = manifest["spec"], submission or f"{manifest['metadata']['name']}-{uuid4().hex[:5]}"
        assert spec["submissionMode"] == "K8sJobMode"
        command = submit_command(spec["entrypoint"], self.dashboard, submission)
        variables = {"PYTHONUNBUFFERED": "1", **_token_variables(self.namespace, self.spec)}
        pod = self.namespace.run("submit", spec["submitterPodTemplate"], command=command, environment=variables)
        return submission, pod

    def list_jobs(self) -> list[dict[str, Any]]:
        """The submitted jobs as Ray's dashboard has them, whose status the operator reads."""
        jobs: list[dict[str, Any]] = json.loads(self.request("/api/jobs/"))
        return jobs

    def read_job(self, submission: str) -> dict[str, Any]:
        return next(job for job in self.list_jobs() if job["submission_id"] == submission)

    def request(self, path: str, body: str = "") -> str:
        """The response of Ray's dashboard to a GET request, or to a PUT request with the body."""
        ran = self.head.execute("python", "-c", REQUEST, self.dashboard + path, body)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


def start_ray_pods(namespace: Namespace, name: str, spec: Mapping[str, Any]) -> RayPods:
    """Starts the head, and the least number of workers of each group without GPUs once the head answers."""
    head_name = f"{name}-head-svc"
    address = namespace.network.reserve_address(head_name, f"{head_name}.rag.svc.cluster.local")
    tokens = _token_variables(namespace, spec)
    head = namespace.run(
        f"{name}-head",
        spec["headGroupSpec"]["template"],
        command=start_command(spec["headGroupSpec"], {"no-monitor": "true"}, is_head=True),
        environment={**tokens, "RAY_ADDRESS": f"127.0.0.1:{HEAD_PORT}", "RAY_enable_autoscaler_v2": "true"},
        address=address,
    )
    workers = [
        _start_worker(namespace, f"{name}-{group['groupName']}-{number}", group, head_name, tokens)
        for group in spec["workerGroupSpecs"]
        for number in range(group["minReplicas"])
    ]
    return RayPods(namespace=namespace, name=name, spec=spec, head=head, workers=workers)


def _start_worker(
    namespace: Namespace, name: str, group: Mapping[str, Any], head: str, tokens: Mapping[str, str]
) -> Container:
    """Starts a worker after the operator's init container, which waits for the head with the pod's own variables."""
    address = f"{head}.rag.svc.cluster.local:{HEAD_PORT}"
    wait = f"until ray health-check --address {address} > /dev/null 2>&1; do sleep 1; done"
    variables = {**tokens, "RAY_ADDRESS": address}
    init = namespace.run(f"{name}-init", group["template"], command=["bash", "-c", wait], environment=variables)
    assert init.wait() == 0, init.read_log()
    command = start_command(group, {"address": address}, is_head=False)
    return namespace.run(name, group["template"], command=command, environment=variables)


def start_command(group: Mapping[str, Any], parameters: Mapping[str, str], *, is_head: bool) -> list[str]:
    """The command of a pod: the operator takes CPUs and memory of the node from the limits of the container."""
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    options = {
        **OPERATOR_PARAMETERS,
        "num-cpus": limits["cpu"],
        "memory": str(int(limits["memory"][:-2]) * UNITS[limits["memory"][-2:]]),
        **parameters,
        **group["rayStartParams"],
    }
    words = [f"--{name}" if value == "true" else f"--{name}={value}" for name, value in sorted(options.items())]
    start = shlex.join(["ray", "start", *(["--head"] if is_head else []), *words])
    return ["/bin/bash", "-c", "--", f"ulimit -n 65536; {start}"]


def submit_command(entrypoint: str, dashboard: str, submission: str) -> list[str]:
    """The command of the operator's submitter: it submits a job once, even if its pod starts again, and follows it."""
    health = f"import urllib.request as request; request.urlopen('{dashboard}/api/gcs_healthz', timeout=5)"
    job = f"ray job submit --address {dashboard} --no-wait --submission-id {submission} -- {entrypoint}"
    script = (
        f"until python3 -c {shlex.quote(health)} > /dev/null 2>&1; do sleep 2; done; "
        f"if ! ray job status --address {dashboard} {submission} > /dev/null 2>&1; then {job}; fi; "
        f"ray job logs --address {dashboard} --follow {submission}"
    )
    return ["/bin/bash", "-ce", "--", script]


def _token_variables(namespace: Namespace, spec: Mapping[str, Any]) -> dict[str, str]:
    options = spec["authOptions"]
    return {"RAY_AUTH_MODE": options["mode"], "RAY_AUTH_TOKEN": namespace.secrets[options["secretName"]]["auth_token"]}
