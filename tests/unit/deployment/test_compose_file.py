"""The Compose file: its schema, its restrictions, and commands and settings that exist."""

import os
import re
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import ROOT, check_rag

from rag_core.settings import load_settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Ray's own making
    from ray.scripts.scripts import start
    from ray.serve.scripts import deploy

    from serve.shape.config import read_serve_config

FILE = ROOT / "cluster" / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OWN = {name: service for name, service in SERVICES.items() if service["image"].startswith("rag-on-ray:")}
DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")


def list_mounted_files() -> Iterator[Path]:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = DEFAULT.sub(r"\1", volume).split(":")[0]
            if source.startswith("."):
                yield FILE.parent / source


def test_it_is_valid_by_the_compose_specification() -> None:
    builtin = pytest.importorskip("check_jsonschema.builtin_schemas", reason="needs check-jsonschema: make setup")
    from jsonschema import Draft7Validator

    errors = Draft7Validator(builtin.get_builtin_schema("vendor.compose-spec")).iter_errors(COMPOSE)
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_change_only_its_volumes_and_has_limits(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"cpus", "memory"} == service["deploy"]["resources"]["limits"].keys()
    assert "privileged" not in service
    assert service["restart"] == ("no" if name in ("migrate", "gateway") else "unless-stopped")
    assert service["healthcheck"]


def test_ports_are_published_on_loopback_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert sorted(ports) == ["127.0.0.1:8000:8000", "127.0.0.1:8265:8265", "127.0.0.1:9090:9090"]


def test_the_store_is_reachable_from_its_own_network_only() -> None:
    assert SERVICES["postgres"]["networks"] == ["store"]
    assert COMPOSE["networks"]["store"] == {"internal": True}
    assert {name for name, service in SERVICES.items() if "store" in service["networks"]} == {
        *("postgres", "migrate", "head", "worker")
    }


def test_every_name_that_a_service_uses_is_defined() -> None:
    for service in SERVICES.values():
        assert set(service["networks"]) <= COMPOSE["networks"].keys()
        assert set(service.get("depends_on", {})) <= SERVICES.keys()
        for secret in service.get("secrets", []):
            assert (secret if isinstance(secret, str) else secret["source"]) in COMPOSE["secrets"]
        sources = [DEFAULT.sub(r"\1", volume).split(":")[0] for volume in service.get("volumes", [])]
        assert {source for source in sources if not source.startswith(".")} <= COMPOSE["volumes"].keys()


def test_list_mounted_files_are_in_the_repository() -> None:
    files = list(list_mounted_files())
    assert len(files) == 5
    assert [str(file) for file in files if not file.exists()] == []


def test_no_secret_is_a_variable() -> None:
    named = [name for service in SERVICES.values() for name in service.get("environment", {}) if "PASSWORD" in name]
    assert named == ["POSTGRES_PASSWORD_FILE"]


@pytest.mark.parametrize("name", OWN)
def test_settings_and_commands_of_our_image_exist(name: str) -> None:
    environment = {key: value for key, value in OWN[name]["environment"].items() if key.startswith("RAG_")}
    assert environment == {"RAG_STORE__URL": "file:/run/secrets/rag/dsn"}
    assert load_settings(environment=environment).store.url == environment["RAG_STORE__URL"]
    if "entrypoint" not in OWN[name]:
        check_rag(list(OWN[name]["command"]))


@pytest.mark.parametrize("name", ["head", "worker"])
def test_a_node_of_ray_has_time_to_drain(name: str) -> None:
    """Docker would kill it after ten seconds. Ray drains a node for 30 s, and then ends its processes."""
    assert SERVICES[name]["stop_grace_period"] == "60s"


@pytest.mark.parametrize("name", ["head", "worker"])
def test_ray_has_the_options_of_its_start(name: str) -> None:
    assert OWN[name]["entrypoint"] == ["ray", "start"]
    start.make_context("start", list(OWN[name]["command"]))


def test_the_gateway_deploys_a_shape_that_is_valid_and_requires_keys() -> None:
    command = [
        str(ROOT / "cluster/serve/compose.yaml") if word.startswith("/etc") else word
        for word in SERVICES["gateway"]["command"]
    ]
    assert deploy.make_context("deploy", command).params["address"] == "http://head:8265"
    shape = read_serve_config(ROOT / "cluster" / "serve" / "compose.yaml")
    assert (shape.http_options.host, shape.http_options.port) == ("0.0.0.0", 8000)  # noqa: S104
    assert shape.applications[0].args["set"] == ["auth.mode=keys"]


def test_secrets_are_written_once_and_only_their_group_can_read_them(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("files are given to another group, which requires root")
    command = [ROOT / "cluster" / "secrets.sh", tmp_path / "secrets"]
    subprocess.run(command, check=True)
    files = {path.name: path for path in (tmp_path / "secrets").iterdir()}
    assert files.keys() == COMPOSE["secrets"].keys()
    assert {(path.stat().st_mode & 0o777, path.stat().st_gid) for path in files.values()} == {(0o440, 10001)}
    password = files["postgres_password"].read_text().strip()
    assert len(password) == 48
    assert files["dsn"].read_text() == f"host=postgres dbname=rag user=rag password={password} sslmode=disable\n"
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (again.returncode, "the store would not accept another password" in again.stderr) == (1, True)
    assert files["postgres_password"].read_text().strip() == password
