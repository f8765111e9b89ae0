"""Builds and checks what is published: wheel, sdist, SBOM and checksums, in dist/.

    make release

The tree must be clean, and CHANGELOG.md must have a section for the version of rag_core/VERSION. The wheel is built
twice from the files of the commit, and must be the same both times. It must contain each file of the packages. It is
installed in a new environment, in which each package must be importable and have the version of constraints.txt. The
SBOM lists what that environment has. TORCH_INDEX names a package index for torch, as for `make setup`. Nothing is in
dist unless all checks pass.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from tools.sbom import complete_sbom, find_fault, list_unlicensed, list_unpinned, read_licenses

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "constraints.txt"
PACKAGES = ("rag_core", "jobs", "rag_cli", "serve", "integrations")
IMPORT_PACKAGES = """
import importlib, json, pkgutil, sys
tops = json.loads(sys.argv[1])
modules = [module for top in tops for module in pkgutil.walk_packages(importlib.import_module(top).__path__, f"{top}.")]
for module in modules:
    if module.ispkg:
        importlib.import_module(module.name)
print(len(tops) + sum(module.ispkg for module in modules))
"""


class ReleaseError(Exception):
    """A reason not to publish."""


def main() -> None:
    version = (ROOT / "rag_core" / "VERSION").read_text().strip()
    shutil.rmtree(DIST, ignore_errors=True)
    (ROOT / "build").mkdir(exist_ok=True)
    try:
        check_tree(version)
        with tempfile.TemporaryDirectory(prefix="release-", dir=ROOT / "build") as folder:
            publish(make_files(version, Path(folder)))
    except ReleaseError as error:
        sys.exit(f"no release: {error}")


def publish(files: list[Path]) -> None:
    """Moves the files to dist, and writes and prints their checksums there."""
    sums = "".join(f"{hash_file(file)}  {file.name}\n" for file in sorted(files))
    DIST.mkdir()
    for file in files:
        shutil.move(file, DIST)
    (DIST / "SHA256SUMS").write_text(sums)
    print(sums, end="", flush=True)


def make_files(version: str, folder: Path) -> list[Path]:
    """The checked files of a release, in the folder."""
    report("building the wheel, twice, and the sdist")
    wheel, sdist = build(version, folder)
    run([sys.executable, "-m", "twine", "check", "--strict", wheel, sdist])
    check_contents(wheel)
    report("installing the wheel in a new environment: gigabytes, and minutes")
    python = install(wheel, folder / "environment")
    check_program(python, version)
    report("writing the SBOM")
    sbom = folder / f"rag_on_ray-{version}.cdx.json"
    sbom.write_text(describe_environment(python, wheel))
    return [wheel, sdist, sbom]


def report(step: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {step}", file=sys.stderr, flush=True)


def check_tree(version: str) -> None:
    """Raises ReleaseError for changes that are not committed, and for a version without a section in the changelog."""
    if changes := run(["git", "status", "--porcelain"]).strip():
        raise ReleaseError(f"the tree has changes that are not committed:\n{changes}")
    if f"\n## [{version}]" not in (ROOT / "CHANGELOG.md").read_text():
        raise ReleaseError(f"CHANGELOG.md has no section ## [{version}] of the version in rag_core/VERSION")


def build(version: str, folder: Path) -> tuple[Path, Path]:
    """(wheel, sdist). Raises ReleaseError if a second build makes another wheel."""
    digests = []
    for output in (folder / "again", folder):
        with tempfile.TemporaryDirectory() as source:
            export_commit(Path(source))
            command = [sys.executable, "-m", "build", "--dependency-constraints-txt", CONSTRAINTS, "--outdir", output]
            run([*command, source], commit_time())
        wheel, sdist = output / f"rag_on_ray-{version}-py3-none-any.whl", output / f"rag_on_ray-{version}.tar.gz"
        digests.append(hash_file(wheel))
    if digests[0] != digests[1]:
        raise ReleaseError(f"two builds of the wheel differ: {digests[0]}, {digests[1]}")
    return wheel, sdist


def commit_time() -> dict[str, str]:
    """The variables of this process, and the time that reproducible files state."""
    return {**os.environ, "SOURCE_DATE_EPOCH": run(["git", "log", "-1", "--format=%ct"]).strip()}


def export_commit(folder: Path) -> None:
    """Writes the files of the commit, without those that git ignores."""
    archive = folder / "commit.tar"
    run(["git", "archive", "--output", archive, "HEAD"])
    shutil.unpack_archive(archive, folder, filter="data")
    archive.unlink()


def check_contents(wheel: Path) -> None:
    """Raises ReleaseError for a file of the packages that the repository has and the wheel lacks."""
    tracked = set(run(["git", "ls-files", *PACKAGES]).splitlines())
    if missing := sorted(tracked - set(zipfile.ZipFile(wheel).namelist())):
        names = ", ".join(missing[:5])
        raise ReleaseError(
            f"the wheel lacks {len(missing)} files, list them in package-data of pyproject.toml: {names}"
        )


def install(wheel: Path, folder: Path) -> Path:
    """The Python of a new environment with the wheel and without pip. torch is first, as in `make setup`."""
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    index = os.environ.get("TORCH_INDEX")
    torch = ["--index-url", index, "torch"] if index else ["torch"]
    for packages in (torch, [wheel]):
        run([*pip, "install", "--quiet", "--constraint", CONSTRAINTS, *packages])
    run([*pip, "check"])
    return python


def check_program(python: Path, version: str) -> None:
    """Raises ReleaseError if the program does not start, states another version or lacks a package."""
    folder = python.parents[1]
    if (stated := run([python.with_name("rag"), "--version"], cwd=folder).strip()) != f"rag-on-ray {version}":
        raise ReleaseError(f"the installed program must state rag-on-ray {version}, got {stated}")
    imported = run([python, "-c", IMPORT_PACKAGES, json.dumps(PACKAGES)], cwd=folder).strip()
    report(f"{stated} starts, and its {imported} packages can be imported")


def describe_environment(python: Path, wheel: Path) -> str:
    """The SBOM as JSON. Raises ReleaseError if it is invalid, or for packages that constraints.txt does not pin."""
    list_packages = [sys.executable, "-m", "cyclonedx_py", "environment", python]
    site_packages = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    listed = json.loads(run([*list_packages, "--output-reproducible", "--output-file", "-"], commit_time()))
    sbom = complete_sbom(listed, hash_file(wheel), read_licenses(site_packages))
    if unpinned := list_unpinned(sbom, CONSTRAINTS.read_text().splitlines()):
        raise ReleaseError(f"constraints.txt does not pin what was installed, add it there: {', '.join(unpinned)}")
    text = json.dumps(sbom, indent=2) + "\n"
    if fault := find_fault(text):
        raise ReleaseError(f"the SBOM is not valid CycloneDX: {fault}")
    unlicensed = ", ".join(list_unlicensed(sbom)) or "none"
    report(f"{len(sbom['components'])} packages in the SBOM; without a stated licence: {unlicensed}")
    return text


def run(command: Sequence[str | Path], environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """The standard output. Raises ReleaseError with what the command printed if it fails.

    PYTHONPATH is not passed on: a new environment must find its own packages.
    """
    variables = {name: value for name, value in (environment or os.environ).items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd or ROOT, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"exit code {done.returncode}: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def hash_file(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
