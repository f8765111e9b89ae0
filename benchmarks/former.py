"""A former version of the program, unpacked from git, and its processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
FORMER = "c8960471"
"""The commit of version 0.1.0: the schema has number 27."""
LOAD = Path(__file__).with_name("upgrade_load.py")
"""The program that former versions run. It imports only what all versions have."""


def unpack_program(folder: Path, revision: str = FORMER) -> Path:
    """Unpacks the revision into the folder, and returns the folder."""
    folder.mkdir()
    with subprocess.Popen(["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x", "-C", folder], stdin=archive.stdout, check=True)
    if archive.returncode:
        raise SystemExit(f"git has no revision {revision}")
    return folder


def run_program(program: Path, *arguments: str) -> None:
    """Runs the load with the program in a folder, to its end."""
    subprocess.run(_command(*arguments), env=_environment(program), check=True)


@contextmanager
def start_program(program: Path, *arguments: str) -> Iterator[None]:
    """Runs the load with the program in a folder, until the block ends."""
    with subprocess.Popen(_command(*arguments), env=_environment(program)) as process:
        try:
            yield
        finally:
            process.terminate()


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", str(LOAD), *arguments]


def _environment(program: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(program)}
