"""Programs of Debian's packages, which `make debian` unpacks."""

import shutil
from pathlib import Path

import pytest
from documents import ROOT

UNPACKED = ROOT / "build" / "debian"


def find_program(name: str) -> Path:
    """The program from `make debian` or the PATH. Skips the test without it."""
    folders = (UNPACKED / "usr" / "bin", UNPACKED / "usr" / "lib" / "go-1.19" / "bin")
    path = next((folder / name for folder in folders if (folder / name).exists()), None) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is needed: make debian")
    return Path(path)
