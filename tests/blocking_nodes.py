"""Nodes of a Ray cluster as processes of this machine, each with its own interpreter and environment."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from waiting import wait_until

from benchmarks.free_port import find_free_port
from jobs.ray_connection import RAY_ENVIRONMENT

START_SECONDS, STOP_SECONDS = 180, 60


@dataclass(frozen=True, slots=True)
class Nodes:
    """A cluster of `ray start --block` processes. `folder` is Ray's temporary folder; its path must be short."""

    folder: Path
    port: int = field(default_factory=find_free_port)
    dashboard_port: int = field(default_factory=find_free_port)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def run_head(self, environment: Mapping[str, str], *options: str) -> Iterator[None]:
        ports = [
            f"--port={self.port}",
            f"--dashboard-port={self.dashboard_port}",
            f"--ray-client-server-port={find_free_port()}",
        ]
        arguments = ["--head", *ports, f"--temp-dir={self.folder}", *options]
        with self._run(Path(sys.executable), environment, arguments):
            yield

    @contextmanager
    def run_worker(
        self, python: Path, environment: Mapping[str, str], *options: str, wrapper: Sequence[str] = ()
    ) -> Iterator[int]:
        """Yields the id of the process. `python` runs the node's workers, and `wrapper` is a command that runs it."""
        with self._run(python, environment, [f"--address={self.address}", *options], wrapper) as pid:
            yield pid

    @contextmanager
    def _run(
        self, python: Path, environment: Mapping[str, str], arguments: Sequence[str], wrapper: Sequence[str] = ()
    ) -> Iterator[int]:
        log = self.folder.with_suffix(f".{find_free_port()}.log")
        agent = f"--dashboard-agent-listen-port={find_free_port()}"
        command = [*wrapper, str(python), "-c", "from ray.scripts.scripts import main; main()", "start", "--block"]
        with log.open("w") as output:
            process = subprocess.Popen(
                [*command, "--disable-usage-stats", agent, *arguments],
                env={**_plain_environment(), **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(lambda: "Ray runtime started" in log.read_text() or process.poll() is not None, START_SECONDS)
            assert process.poll() is None, log.read_text()
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS)


def _plain_environment() -> dict[str, str]:
    """The environment of this process without variables of the project and the tests, and with the project's of Ray.

    A node that is asked to stop does so at once: Ray would wait 30 s for its detached actors.
    """
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RAY_", "RAG_")) and name != "PYTHONPATH" and not name.lower().endswith("_proxy")
    }
    return plain | RAY_ENVIRONMENT | {"RAY_AUTH_MODE": "disabled", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
