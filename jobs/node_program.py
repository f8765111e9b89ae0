"""The program that a node has. It runs on nodes that lack it, so it imports only the standard library at its top."""

import importlib.util
import platform
from collections.abc import Sequence
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def describe_program(packages: Sequence[str], distributions: Sequence[str]) -> dict[str, Any]:
    """The folder and the digest of the packages' files, and the versions of the distributions.

    The digest is empty if a package is missing, and so is the version of a missing distribution.
    """
    folders = [find_package(name) for name in packages]
    return {
        "python": platform.python_version(),
        "folder": str(folders[0].parent) if folders and folders[0] else "",
        "digest": digest_files([folder for folder in folders if folder]) if all(folders) else "",
        "versions": {name: find_version(name) for name in distributions},
    }


def find_package(name: str) -> Path | None:
    """The folder of a package, without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def find_version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def digest_files(folders: Sequence[Path]) -> str:
    """A hash of the names and contents of all files, except those that Python compiles."""
    digest = blake2b(digest_size=16)
    for folder in folders:
        for file in sorted(file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts):
            body = file.read_bytes()
            digest.update(f"{file.relative_to(folder.parent)}\0{len(body)}\0".encode())
            digest.update(body)
    return digest.hexdigest()
