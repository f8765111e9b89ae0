"""The Compose file's services, run as its containers would run them, each when those that it depends on are healthy."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from compose_services import SERVICES, Project
from containers import Container, needs_namespaces, run_network
from debian import find_program
from documents import ROOT
from waiting import wait_until

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.ray,
    pytest.mark.model,
    pytest.mark.postgres,
    pytest.mark.timeout(900),
    needs_namespaces,
]

RULES = [
    yaml.safe_load(file.read_text()) for file in sorted((ROOT / "cluster" / "prometheus" / "rules").glob("*.yaml"))
]


@pytest.fixture(scope="module")
def project(short_folder: Path) -> Iterator[Project]:
    find_program("prometheus")
    secrets = short_folder / f"secrets-{uuid4().hex[:6]}"
    subprocess.run([ROOT / "cluster" / "secrets.sh", secrets], check=True)
    folder = short_folder / f"compose-{uuid4().hex[:6]}"
    folder.mkdir()
    with run_network(folder) as network:
        yield Project(network=network, secrets=secrets)


@pytest.fixture(scope="module")
def services(project: Project) -> dict[str, Container]:
    """All services after `docker compose up`: a dependency comes first in the file, and is healthy or has ended."""
    assert list(SERVICES) == ["postgres", "migrate", "head", "worker", "gateway", "prometheus"]
    return {name: project.start(name) for name in SERVICES}


def test_a_gateway_answers_those_who_have_a_key(project: Project, services: dict[str, Container]) -> None:
    head, worker = services["head"], services["worker"]
    wait_until(lambda: head.status(8000, "/readyz") == 200, 300)
    create = project.run("migrate", ["keys", "create", "--role", "admin", "--name", "first", "--json"])
    assert create.wait() == 0, create.read_log()
    [line] = [line for line in create.read_log().splitlines() if line.startswith("{")]
    ingest = worker.execute("env", "RAY_ADDRESS=head:6379", "rag", "ingest", "/srv/sources", "--runner", "ray")
    assert ingest.returncode == 0, ingest.stderr
    question = json.dumps({"query": "How long may a dive last in cold water?"})
    assert search(head, question, "none") == (401, "")
    status, body = search(head, question, json.loads(line)["key"])
    assert (status, "diving" in body) == (200, True)


def search(client: Container, question: str, key: str) -> tuple[int, str]:
    """The status of a search through the published port of the head, and the response if it has succeeded."""
    script = """
import sys, urllib.error, urllib.request
headers = {"Authorization": f"Bearer {sys.argv[2]}", "Content-Type": "application/json"}
try:
    request = urllib.request.Request("http://127.0.0.1:8000/v1/retrieve", sys.argv[1].encode(), headers)
    response = urllib.request.urlopen(request)
    print(response.status, response.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, "")
"""
    status, _, body = client.execute("python", "-c", script, question, key).stdout.strip().partition(" ")
    return int(status), body


def test_rays_ports_are_closed_to_those_who_lack_the_token(services: dict[str, Container]) -> None:
    assert services["head"].status(8265, "/api/jobs/") == 401
    without = ["env", "--unset=RAY_AUTH_TOKEN_PATH", "RAY_AUTH_TOKEN=another", "ray"]
    listing = services["worker"].execute(*without, "job", "list", "--address", "http://head:8265")
    assert listing.returncode != 0
    with_token = services["worker"].execute("ray", "job", "list", "--address", "http://head:8265")
    assert with_token.returncode == 0, with_token.stderr


def test_prometheus_scrapes_all_nodes_with_all_rules(services: dict[str, Container]) -> None:
    def ask_prometheus(path: str) -> Any:
        reply = services["prometheus"].execute("curl", "-s", f"http://127.0.0.1:9090/api/v1/{path}")
        return json.loads(reply.stdout)["data"]

    def list_healthy() -> set[str]:
        targets = ask_prometheus("targets?state=active")["activeTargets"]
        return {target["labels"]["instance"] for target in targets if target["health"] == "up"}

    nodes = {f"{services[name].address}:8080" for name in ("head", "worker")}
    wait_until(lambda: nodes <= list_healthy(), 120)
    groups = ask_prometheus("rules")["groups"]
    assert {group["name"] for group in groups} == {group["name"] for rule in RULES for group in rule["groups"]}
    assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}


def test_no_secret_is_in_a_command_line_or_a_log(project: Project, services: dict[str, Container]) -> None:
    hidden = [(project.secrets / name).read_text().strip() for name in ("postgres_password", "auth_token")]
    texts = {name: "\n".join([*service.command_lines(), service.read_log()]) for name, service in services.items()}
    logs = [path for path in project.network.folder.rglob("*") if path.is_file() and "logs" in path.parts]
    texts |= {str(path): path.read_text(errors="replace") for path in logs}
    assert len(logs) > 20
    assert [(name, secret) for name, text in texts.items() for secret in hidden if secret in text] == []
