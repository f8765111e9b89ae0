"""Ray Serve on a cluster of `three_nodes`, as its dashboard shows it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import yaml

from benchmarks.three_nodes import ThreeNodes

TIMEOUT = 600.0
"""Seconds in which a change of the application is complete."""
APPLICATION = "rag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    id: str
    deployment: str
    node: str
    state: str


def deploy(cluster: ThreeNodes, shape: Mapping[str, Any], file: Path) -> None:
    """Writes the Serve config to the file, and runs `serve deploy`."""
    file.write_text(yaml.safe_dump(dict(shape)))
    with cluster.run("serve", "deploy", str(file)) as process:
        if process.wait(TIMEOUT):
            raise SystemExit(f"serve deploy {file} ended with {process.returncode}")


def list_replicas(cluster: ThreeNodes) -> list[Replica]:
    application = _read_status(cluster)
    return [
        Replica(id=replica["replica_id"], deployment=name, node=replica.get("node_id") or "", state=replica["state"])
        for name, deployment in application.get("deployments", {}).items()
        for replica in deployment["replicas"]
    ]


def wait_until_deployed(cluster: ThreeNodes, is_complete: Callable[[list[Replica]], bool]) -> float:
    """Waits until the application runs, no replica starts or stops, and the replicas are complete. Returns seconds."""
    began = time.monotonic()
    while time.monotonic() < began + TIMEOUT:
        application, replicas = _read_status(cluster), list_replicas(cluster)
        states = {replica.state for replica in replicas}
        if application.get("status") == "RUNNING" and states == {"RUNNING"} and is_complete(replicas):
            return time.monotonic() - began
        if application.get("status") == "DEPLOY_FAILED":
            raise SystemExit(f"the application cannot be deployed: {application['message']}")
        time.sleep(0.5)
    raise SystemExit(f"the application is not complete after {TIMEOUT:g} s: {application}")


def _read_status(cluster: ThreeNodes) -> dict[str, Any]:
    response = httpx2.get(
        f"{cluster.environment['RAY_DASHBOARD_ADDRESS']}/api/serve/applications/",
        headers={"Authorization": f"Bearer {cluster.token}"},
        timeout=60.0,
    )
    status: dict[str, Any] = response.json()["applications"].get(APPLICATION, {})
    return status
