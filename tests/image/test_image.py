"""The image for CPUs, built and used in a chroot: without network, with a read-only root and without capabilities."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import ROOT

from tools.image.dockerfile import parse_dockerfile, read_command

pytestmark = [
    pytest.mark.image,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mmdebstrap"), reason="needs root and mmdebstrap"),
]

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "cluster" / "compose.yaml").read_text())
TOOL = [sys.executable, "-m", "tools.image"]
NODES = ("head", "worker", "gateway")
USER = 10001
UNMET_REQUIREMENTS = """
from importlib.metadata import distributions
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
versions = {canonicalize_name(package.name): package.version for package in distributions()}
required = [Requirement(line) for package in distributions() for line in package.requires or ()]
needed = [line for line in required if not line.marker or line.marker.evaluate({"extra": ""})]
installed = [(line, versions.get(canonicalize_name(line.name))) for line in needed]
print([str(line) for line, version in installed if not version or not line.specifier.contains(version, True)])
"""
OTHER_PORTS = ["--metrics-export-port=8081", "--dashboard-agent-listen-port=52366", "--num-cpus=4"]
"""Of the second node, which shares the address of the first one in the test, and has the CPUs of this machine."""


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume of an image that is built: an empty folder of its user, with the sample corpus."""
    subprocess.run([*TOOL, "build"], cwd=ROOT, check=True)
    folder = tmp_path_factory.mktemp("volume")
    shutil.copytree(ROOT / "demo" / "corpus", folder / "corpus")
    shutil.copy(ROOT / "cluster" / "serve" / "compose.yaml", folder / "serve.yaml")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER, USER)
    return folder


def run(volume: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAG_")}
    return subprocess.run(
        [*TOOL, "run", "--offline", "--volume", volume, "--", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def health_check() -> str:
    """The HEALTHCHECK of the Dockerfile as a command of a shell."""
    runtime = parse_dockerfile((ROOT / "cluster" / "docker" / "Dockerfile").read_text()).stage("runtime")
    assert runtime
    check = next(instruction.value for instruction in runtime.instructions if instruction.name == "HEALTHCHECK")
    return shlex.join(read_command(check.partition(" CMD ")[2]))


def test_its_program_has_the_version_of_the_repository(volume: Path) -> None:
    version = (ROOT / "rag_core" / "VERSION").read_text().strip()
    assert run(volume, "rag", "--version").stdout == f"rag-on-ray {version}\n"


def test_its_user_can_change_nothing_but_the_volume_and_temporary_files(volume: Path) -> None:
    script = "find / -xdev -writable ! -type l ! -path '/proc/*'; touch /tmp/file /var/lib/rag/file && id -u"
    ran = run(volume, "sh", "-c", script)
    assert set(ran.stdout.split()) == {"/tmp", "/var/lib/rag", str(USER)}, ran.stderr  # noqa: S108
    assert "Read-only file system" in run(volume, "touch", "/etc/file").stderr


def test_it_has_no_tools_to_build_or_fetch_programs(volume: Path) -> None:
    tools = ("gcc", "make", "git", "curl", "wget", "/opt/rag/bin/pip")
    ran = run(volume, "sh", "-c", " ".join(["for tool in", *tools, "; do command -v $tool; done; true"]))
    assert ran.stdout == ""


def test_every_package_has_what_it_requires(volume: Path) -> None:
    ran = run(volume, "python", "-c", UNMET_REQUIREMENTS)
    assert (ran.returncode, ran.stdout) == (0, "[]\n"), ran.stderr


def test_the_doctor_misses_nothing(volume: Path) -> None:
    ran = run(volume, "rag", "doctor")
    assert ran.returncode == 0, ran.stdout
    assert "missing" not in ran.stdout
    assert "all-MiniLM-L6-v2: 384 dimensions" in ran.stdout


def test_it_syncs_and_searches_with_the_embedded_store(volume: Path) -> None:
    script = "rag ingest corpus --quiet && rag search 'How long may a dive last in cold water?' -k 1"
    ran = run(volume, "sh", "-c", script)
    assert ran.stdout.startswith("1. The diving permit"), ran.stdout + ran.stderr


def test_its_health_check_fails_until_the_server_is_ready_and_sigterm_ends_it(volume: Path) -> None:
    script = f"HEALTH={shlex.quote(health_check())}\n{(ROOT / 'tests' / 'image' / 'serve.sh').read_text()}"
    ran = run(volume, "sh", "-c", script)
    assert ran.stdout.split("\n") == ["unhealthy", "healthy", "exit code 0", ""], ran.stderr


def test_the_commands_of_the_compose_file_serve_on_a_cluster_with_a_token(volume: Path) -> None:
    services = COMPOSE["services"]
    head, worker, gateway = ([*services[name]["entrypoint"], *services[name]["command"]] for name in NODES)
    worker = [word for word in worker if not word.startswith("--metrics-export-port")] + OTHER_PORTS
    variables = {"HEAD": head, "WORKER": worker, "GATEWAY": gateway}
    lines = [f"{name}={shlex.quote(shlex.join(words))}" for name, words in variables.items()]
    lines += [f"HEALTH={shlex.quote(health_check())}", (ROOT / "tests" / "image" / "cluster.sh").read_text()]
    script = "\n".join(lines).replace("//head:", "//127.0.0.1:").replace("=head:", "=127.0.0.1:")
    ran = run(volume, "sh", "-c", script.replace("/etc/rag/serve.yaml", "/var/lib/rag/serve.yaml"))
    assert ran.stdout.split() == ["401", "200"], ran.stdout + ran.stderr
