"""The Dockerfile and its locks, without a container runtime. `make image-check` executes them."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path, PurePosixPath

import pytest
from documents import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.image.dockerfile import is_ignored, parse_dockerfile, read_command, read_patterns
from tools.lock_hashes import CUDA_PACKAGES, EXTRAS

FOLDER = ROOT / "cluster" / "docker"
DOCKERFILE = parse_dockerfile((FOLDER / "Dockerfile").read_text())
IGNORED = read_patterns((ROOT / ".dockerignore").read_text())
PIN = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s;]+)", re.MULTILINE)


def read_pins(path: Path) -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in PIN.findall(path.read_text())}


CPU, CUDA = (read_pins(FOLDER / f"requirements-{name}.txt") for name in ("cpu", "cuda"))
PINS = read_pins(ROOT / "constraints.txt")


def package_names(requirements: Iterable[str]) -> set[str]:
    """The packages that are required on Linux."""
    parsed = (Requirement(line) for line in requirements)
    return {
        canonicalize_name(requirement.name)
        for requirement in parsed
        if not requirement.marker or requirement.marker.evaluate({"extra": ""})
    }


def test_hadolint_and_shellcheck_find_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    linted = subprocess.run([hadolint, FOLDER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout) == (0, "")


def test_hadolint_refuses_a_stage_that_runs_as_root_and_pipes_a_download_to_a_shell(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN cd /srv && apt-get install curl\nUSER root\n")
    hadolint = Path(sys.executable).with_name("hadolint")
    linted = subprocess.run([hadolint, tmp_path / "Dockerfile"], capture_output=True, text=True, check=False)
    assert {"DL3002", "DL3006", "DL3008"} <= set(re.findall(r"DL\d+", linted.stdout))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_target_ends_as_a_user_without_a_name_to_look_up(target: str) -> None:
    stage = DOCKERFILE.stage(target)
    assert stage
    assert [instruction.value for instruction in stage.instructions if instruction.name == "USER"] == ["10001:10001"]
    assert stage.instructions[-1].name == "USER"


def test_the_cpu_target_has_no_build_tools_and_is_the_last_one() -> None:
    runtime, cpu = DOCKERFILE.stage("runtime"), DOCKERFILE.stage("cpu")
    assert runtime
    assert cpu
    assert DOCKERFILE.stages[-1] == cpu
    assert not any(
        "apt-get" in instruction.value or "pip" in instruction.value
        for instruction in (*runtime.instructions, *cpu.instructions)
    )


def test_the_health_check_is_a_program_that_parses() -> None:
    runtime = DOCKERFILE.stage("runtime")
    assert runtime
    check = next(instruction.value for instruction in runtime.instructions if instruction.name == "HEALTHCHECK")
    python, option, program = read_command(check.partition(" CMD ")[2])
    assert (python, option) == ("python", "-c")
    compile(program, "HEALTHCHECK", "exec")


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("rag_core/config.py", False),
        ("rag_core/__pycache__/config.cpython-311.pyc", True),
        ("cluster/docker/requirements-cpu.txt", False),
        ("cluster/secrets/dsn", True),
        ("tests/conftest.py", True),
        ("build/debian/usr/bin/prometheus", True),
        (".git/config", True),
        ("my.yaml", True),
    ],
)
def test_only_what_the_image_copies_reaches_its_build(path: str, ignored: bool) -> None:
    assert is_ignored(PurePosixPath(path), IGNORED) == ignored


def test_every_copied_path_exists_and_is_not_ignored() -> None:
    copies = [
        instruction.value.split()
        for stage in DOCKERFILE.stages
        for instruction in stage.instructions
        if instruction.name == "COPY"
    ]
    sources = [source for words in copies if not words[0].startswith("--from=") for source in words[:-1]]
    assert sources
    assert [path for path in sources if not (ROOT / path).exists() or is_ignored(PurePosixPath(path), IGNORED)] == []


def test_the_cpu_lock_has_the_versions_of_the_constraints() -> None:
    assert read_pins(FOLDER / "requirements-torch.txt") == {"torch": PINS["torch"]}
    assert {name: version for name, version in CPU.items() if PINS.get(name) != version} == {}


def test_the_cpu_lock_has_every_package_that_is_required_except_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for extra in EXTRAS for line in project["optional-dependencies"][extra]]
    assert package_names([*project["dependencies"], *extras]) - CPU.keys() == {"torch"}
    assert package_names(requires("torch") or ()) - CPU.keys() <= set(CUDA_PACKAGES)
    assert not any(name.startswith(("nvidia-", "cuda-")) for name in CPU)


def test_nodes_of_both_images_exchange_objects_of_the_same_ray_and_libraries() -> None:
    pickled = ("ray", "pyarrow", "pydantic", "cloudpickle", "psycopg", "transformers", "sentence-transformers")
    assert {name: CUDA[name] for name in pickled} == {name: CPU[name] for name in pickled}
    assert CUDA["torch"] == PINS["torch"]
    assert "vllm" in CUDA
    assert "vllm" not in CPU


@pytest.mark.parametrize("name", ["build", "cpu", "cuda"])
def test_every_locked_package_has_a_hash(name: str) -> None:
    text = (FOLDER / f"requirements-{name}.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines
    assert [line for line in lines if "--hash=sha256:" not in line] == []


def test_an_instruction_must_begin_its_line_and_a_stage_have_a_name() -> None:
    with pytest.raises(ValueError, match="a line must begin with an instruction in capitals: copy a b"):
        parse_dockerfile("FROM scratch AS empty\ncopy a b\n")
    with pytest.raises(ValueError, match="a stage must have a name, FROM image AS name: scratch"):
        parse_dockerfile("FROM scratch\n")
