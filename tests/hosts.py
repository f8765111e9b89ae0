"""Stores for the tests that kill processes, fill disks and freeze servers, and commands that use them."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from rag_core.storage import embedded
from rag_core.storage.postgres import Postgres

DOCUMENTS = 400
SETTINGS = ("--set", "embedding.type=hashing", "--set", "ingestion.group=16", "--set", "store.patience_s=30")
RAG = [sys.executable, "-m", "rag_cli"]


@dataclass(frozen=True)
class Host:
    """A separate store, and commands that use it."""

    home: Path
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"RAG_HOME": str(self.home)}

    @property
    def store(self) -> Postgres:
        return Postgres(embedded.start(self.home / "postgres"))

    def ingest(self, runner: str, *options: str, stderr: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
        command = [*RAG, "ingest", str(self.folder), "--runner", runner, "--quiet", "--yes", *SETTINGS, *options]
        return subprocess.Popen(command, env=self.environment, start_new_session=True, stderr=stderr)


def postmaster(host: Host) -> psutil.Process:
    return psutil.Process(int((host.home / "postgres" / "postmaster.pid").read_text().split()[0]))


def with_interrupts(command: Sequence[str]) -> list[str]:
    """The command, started by a Python process that restores the default handling of SIGINT.

    A shell that runs the tests in the background ignores SIGINT, and child processes inherit this. `preexec_fn` is not
    an alternative: it runs gRPC's fork handlers, which abort if gRPC's threads are busy.
    """
    restore = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-c", restore, *command]
