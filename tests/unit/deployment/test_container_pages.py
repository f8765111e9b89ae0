"""The pages on images and releases: their blocks parse, and the commands inside of containers exist."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from documents import ROOT, Reader, check_rag, read_blocks

VERSION = (ROOT / "rag_core" / "VERSION").read_text().strip()
IMAGES = (ROOT / "docs" / "how-to" / "images.md").read_text()
IMAGE = f"rag-on-ray:{VERSION}"
RELEASE = ROOT / "cluster" / "docker" / "release.sh"
DIGEST, HASH = f"sha256:{'0' * 64}", "1" * 64


def commands_in_containers() -> list[list[str]]:
    """The arguments of `rag` in `docker run … IMAGE …`, `docker compose run … migrate …` and `… exec worker rag …`."""
    lines = "\n".join(block.text for block in read_blocks(IMAGES)).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("docker")]
    ends = (IMAGE, "migrate", "rag")
    starts = [(line, max((line.index(end) + 1 for end in ends if end in line), default=0)) for line in words]
    return [line[start:] for line, start in starts if start and ("run" in line or "exec" in line)]


@pytest.mark.parametrize("name", ["images", "release"])
def test_blocks_parse(name: str) -> None:
    Reader(ROOT).follow((ROOT / "docs" / "how-to" / f"{name}.md").read_text())


def test_commands_in_containers_exist() -> None:
    commands = commands_in_containers()
    assert [" ".join(command[:2]) for command in commands] == [
        *("ingest /srv/sources", "search How long may a dive last in cold water?", "keys create"),
        *("serve --host", "keys create", "ingest /srv/sources", "ingest /srv/sources"),
    ]
    for command in commands:
        check_rag(command)


def test_pages_the_dockerfile_and_compose_name_the_current_version() -> None:
    files = ("cluster/docker/Dockerfile", "cluster/compose.yaml", "docs/how-to/images.md", "docs/how-to/schedule.md")
    text = "".join((ROOT / file).read_text() for file in files)
    named = re.findall(r"rag-on-ray:(?:\$\{RAG_VERSION:-)?([\d.]+)", text)
    assert len(named) >= 10
    release = (ROOT / "docs" / "how-to" / "release.md").read_text()
    assert all(f"`{file}`" in release for file in files)
    assert set(named) == {VERSION}


def test_the_page_lists_the_build_arguments_of_the_dockerfile() -> None:
    dockerfile = (ROOT / "cluster" / "docker" / "Dockerfile").read_text()
    table = IMAGES.partition("| build argument |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^ARG (\w+)", dockerfile, re.MULTILINE)) == set(re.findall(r"`([A-Z_\d]+)`", table))


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The script in a repository without changes."""
    script = tmp_path / "cluster" / "docker" / "release.sh"
    script.parent.mkdir(parents=True)
    shutil.copy(RELEASE, script)
    (tmp_path / "rag_core").mkdir()
    shutil.copy(ROOT / "rag_core" / "VERSION", tmp_path / "rag_core")
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "Start"]):
        identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "core.hooksPath=/dev/null"]
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True)
    return script


def run_release(script: Path, programs: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs the script with a `docker` that prints its arguments."""
    docker = programs / "docker"
    docker.write_text('#!/bin/sh\necho "$@"\n')
    docker.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    return subprocess.run([script, *arguments], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gpu", DIGEST), "the target must be cpu or cuda, got 'gpu'"),
        (("cpu",), "BASE_DIGEST must be sha256: and 64 digits, got ''"),
        (("cuda", "latest"), "BASE_DIGEST must be sha256: and 64 digits, got 'latest'"),
        (("cpu", DIGEST), "TORCH_SHA256 must be 64 digits, got ''"),
    ],
)
def test_an_image_is_not_released_without_digests(
    release: Path, tmp_path_factory: pytest.TempPathFactory, arguments: tuple[str, ...], message: str
) -> None:
    ran = run_release(release, tmp_path_factory.mktemp("bin"), *arguments)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"no release: {message}\n")


def test_an_image_is_not_released_from_a_tree_with_changes(
    release: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    release.with_name("notes.txt").write_text("later")
    ran = run_release(release, tmp_path_factory.mktemp("bin"), "cuda", DIGEST)
    message = "the tree has changes that are not committed: ?? cluster/docker/notes.txt"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"no release: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "tag"), [(("cpu", DIGEST, HASH), VERSION), (("cuda", DIGEST), f"{VERSION}-cuda")]
)
def test_an_image_is_built_from_digests(
    release: Path, tmp_path_factory: pytest.TempPathFactory, arguments: tuple[str, ...], tag: str
) -> None:
    words = run_release(release, tmp_path_factory.mktemp("bin"), *arguments).stdout.split()
    assert words[:2] == ["build", "--file"]
    assert words[words.index("--tag") + 1] == f"rag-on-ray:{tag}"
    assert words[words.index("--platform") + 1] == "linux/amd64"
    assert {f"BASE_DIGEST={DIGEST}", f"org.opencontainers.image.version={VERSION}"} <= set(words)
