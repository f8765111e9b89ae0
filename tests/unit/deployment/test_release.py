"""What `make release` refuses, and that the wheel takes every file of the packages along."""

import subprocess
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from documents import ROOT

import rag_core
from tools import release
from tools.release import PACKAGES, ReleaseError, check_contents, check_program, check_tree, publish


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a package and a changelog, in which everything is committed."""
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-11-26\n")
    (tmp_path / "rag_core").mkdir()
    (tmp_path / "rag_core" / "VERSION").write_text("1.2.0\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "Start"]):
        identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "core.hooksPath=/dev/null"]
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True)
    return tmp_path


def test_the_version_has_one_source() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"file": "rag_core/VERSION"}
    assert rag_core.__version__ == (ROOT / "rag_core" / "VERSION").read_text().strip()


def test_every_file_of_the_packages_is_package_data_or_python() -> None:
    listed = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True)
    data = {line for line in listed.stdout.splitlines() if not line.endswith(".py")}
    globs = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    matched = {
        str(path.relative_to(ROOT))
        for package, patterns in globs.items()
        for pattern in patterns
        for path in (ROOT / package).glob(pattern)
    }
    assert data
    assert data - matched == set()


def test_a_committed_version_with_a_section_in_the_changelog_can_be_released(repository: Path) -> None:
    check_tree("1.2.0")


def test_a_change_that_is_not_committed_is_refused(repository: Path) -> None:
    (repository / "notes.md").write_text("later")
    with pytest.raises(ReleaseError, match=r"the tree has changes that are not committed:\n\?\? notes.md"):
        check_tree("1.2.0")


def test_a_version_without_a_section_in_the_changelog_is_refused(repository: Path) -> None:
    with pytest.raises(ReleaseError, match=r"CHANGELOG.md has no section ## \[1.3.0\]"):
        check_tree("1.3.0")


def test_a_wheel_that_lacks_a_file_is_refused(repository: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "empty.whl"
    zipfile.ZipFile(wheel, "w").close()
    with pytest.raises(ReleaseError, match=r"the wheel lacks 1 files, .*: rag_core/VERSION"):
        check_contents(wheel)


def test_a_step_that_fails_shows_what_it_printed(repository: Path) -> None:
    with pytest.raises(ReleaseError, match="exit code 128: git show nothing\nfatal: "):
        release.run(["git", "show", "nothing"])


def test_a_program_that_states_another_version_is_refused(repository: Path) -> None:
    rag = repository / "bin" / "rag"
    rag.parent.mkdir()
    rag.write_text("#!/bin/sh\necho rag-on-ray 1.1.0\n")
    rag.chmod(0o755)
    with pytest.raises(ReleaseError, match=r"must state rag-on-ray 1\.2\.0, got rag-on-ray 1\.1\.0"):
        check_program(rag.with_name("python"), "1.2.0")


def test_published_files_have_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "DIST", tmp_path / "dist")
    files = [tmp_path / "rag_on_ray-1.2.0.tar.gz", tmp_path / "rag_on_ray-1.2.0-py3-none-any.whl"]
    for file in files:
        file.write_text(file.name)
    publish(files)
    sums = "".join(f"{sha256(file.name.encode()).hexdigest()}  {file.name}\n" for file in sorted(files))
    assert (tmp_path / "dist" / "SHA256SUMS").read_text() == sums
    assert [(tmp_path / "dist" / file.name).read_text() for file in files] == [file.name for file in files]
    assert not any(file.exists() for file in files)
