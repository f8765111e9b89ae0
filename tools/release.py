"""Builds and checks what is published: wheel, sdist, SBOM and checksums, in dist/.

    make release

The tree must be clean, and CHANGELOG.md must have a section for the version of rag_core/VERSION. The wheel is built
twice from the files of the commit, and must be the same both times. It must contain each file of the packages. It is
installed in a new environment, in which each package must be importable. The SBOM lists what that environment has.
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
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
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
    try:
        check_tree(version)
        shutil.rmtree(DIST, ignore_errors=True)
        wheel, sdist = build(version)
        run([sys.executable, "-m", "twine", "check", "--strict", wheel, sdist])
        check_contents(wheel)
        with tempfile.TemporaryDirectory() as folder:
            python = install(wheel, Path(folder))
            sbom = DIST / f"rag_on_ray-{version}.cdx.json"
            run([sys.executable, "-m", "cyclonedx_py", "environment", python, "--output-reproducible", "-o", sbom])
    except ReleaseError as error:
        sys.exit(f"no release: {error}")
    sums = "".join(f"{hash_file(file)}  {file.name}\n" for file in sorted((wheel, sdist, sbom)))
    (DIST / "SHA256SUMS").write_text(sums)
    print(sums, end="")


def check_tree(version: str) -> None:
    """Raises ReleaseError for changes that are not committed, and for a version without a section in the changelog."""
    if changes := run(["git", "status", "--porcelain"]).strip():
        raise ReleaseError(f"the tree has changes that are not committed:\n{changes}")
    if f"\n## [{version}]" not in (ROOT / "CHANGELOG.md").read_text():
        raise ReleaseError(f"CHANGELOG.md has no section ## [{version}] of the version in rag_core/VERSION")


def build(version: str) -> tuple[Path, Path]:
    """(wheel, sdist). Raises ReleaseError if a second build makes another wheel."""
    digests = []
    for folder in (DIST / "again", DIST):
        with tempfile.TemporaryDirectory() as source:
            export_commit(Path(source))
            epoch = {**os.environ, "SOURCE_DATE_EPOCH": run(["git", "log", "-1", "--format=%ct"]).strip()}
            run([sys.executable, "-m", "build", "--outdir", folder, source], epoch)
        wheel, sdist = folder / f"rag_on_ray-{version}-py3-none-any.whl", folder / f"rag_on_ray-{version}.tar.gz"
        digests.append(hash_file(wheel))
    shutil.rmtree(DIST / "again")
    if digests[0] != digests[1]:
        raise ReleaseError(f"two builds of the wheel differ: {digests[0]}, {digests[1]}")
    return wheel, sdist


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
    """The Python of a new environment with the wheel, in which the program starts and every package can be imported."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--constraint", ROOT / "constraints.txt", wheel])
    run([python, "-m", "pip", "check"], cwd=folder)
    print(run([folder / "bin" / "rag", "--version"], cwd=folder).strip(), file=sys.stderr)
    imported = run([python, "-c", IMPORT_PACKAGES, json.dumps(PACKAGES)], cwd=folder).strip()
    print(f"{imported} packages can be imported", file=sys.stderr)
    return python


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
