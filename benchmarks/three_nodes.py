"""A Ray cluster of three nodes on this machine, started with a token by `ray start`, as on three machines.

The head has no CPUs, so that tasks and replicas run on the two workers. A worker can be killed with all its processes.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psutil

from benchmarks.free_port import find_free_port
from jobs.ray_connection import RAY_ENVIRONMENT

MARK = "RAG_NODE"
"""The environment variable with the mark of a node."""
BIN = Path(sys.executable).parent
START_TIMEOUT = 180.0
"""Seconds in which a node starts, even on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """`mark` is in the environment of each of its processes. `process` is `ray start --block`, the parent of most."""

    name: str
    mark: str
    process: "subprocess.Popen[bytes]"

    def kill(self) -> None:
        """Kills all its processes at once, as the loss of a machine would. The raylet is first, so that none is new."""
        processes = self._find_processes()
        for process in sorted(processes, key=lambda process: process.name() != "raylet"):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=30)
        for process in self._find_processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()

    def _find_processes(self) -> list[psutil.Process]:
        """Ray's agents and workers have a title in place of their environment, and are found as children."""
        marked = [process for process in psutil.process_iter() if _has_mark(process, self.mark)]
        children = [child for process in marked for child in _children(process)]
        return list({process.pid: process for process in (*marked, *children)}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreeNodes:
    """`environment` is what a client of the cluster needs: its address and its token."""

    head: Node
    workers: Sequence[Node]
    environment: Mapping[str, str]

    @property
    def token(self) -> str:
        return Path(self.environment["HOME"], ".ray", "auth_token").read_text()

    def run(self, program: str, *arguments: str, **options: object) -> "subprocess.Popen[str]":
        """Starts one of Ray's programs, such as `ray` or `serve`, as a client of the cluster."""
        command = [str(BIN / program), *arguments]
        return subprocess.Popen(command, env=dict(self.environment), text=True, **options)  # type: ignore[call-overload,no-any-return]


@contextmanager
def three_nodes(folder: Path, environment: Mapping[str, str], worker_cpus: int = 1) -> Iterator[ThreeNodes]:
    """Starts the nodes, whose files are in the folder; its path must be short. Kills them at the end.

    `environment` is added to that of all nodes. Without their own RAY_TMPDIR, drivers would join the cluster of this
    machine that started last.
    """
    gcs, dashboard, client = (find_free_port() for _ in range(3))
    home = folder / "home"
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text(uuid4().hex)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    shared = {
        **inherited,
        **RAY_ENVIRONMENT,
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve.http.request_ids:serve_middlewares",
        "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "HOME": str(home),
        "RAY_AUTH_MODE": "token",
        "RAY_TMPDIR": str(folder),
        **environment,
    }
    head = ("--head", f"--port={gcs}", f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}")
    worker = (f"--address=127.0.0.1:{gcs}", f"--num-cpus={worker_cpus}")
    with ExitStack() as nodes:

        def start(name: str, *options: str) -> Node:
            return nodes.enter_context(_run_node(name, folder, shared, options))

        cluster = ThreeNodes(
            head=start("head", *head, "--num-cpus=0", "--include-dashboard=true"),
            workers=[start(name, *worker) for name in ("one", "two")],
            environment={
                **shared,
                "RAY_ADDRESS": f"127.0.0.1:{gcs}",
                "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}",
                "RAY_DASHBOARD_ADDRESS": f"http://127.0.0.1:{dashboard}",
            },
        )
        yield cluster


@contextmanager
def _run_node(name: str, folder: Path, environment: Mapping[str, str], options: Sequence[str]) -> Iterator[Node]:
    mark, log = f"{name}-{os.getpid()}-{uuid4().hex}", folder / f"{name}.log"
    command = [
        *(str(BIN / "ray"), "start", "--block", "--disable-usage-stats", "--object-store-memory=100000000"),
        f"--temp-dir={folder / name}",
        f"--dashboard-agent-listen-port={find_free_port()}",
        f"--metrics-export-port={find_free_port()}",
        *options,
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**environment, MARK: mark}, stdout=output, stderr=output, start_new_session=True
        )
    node = Node(name=name, mark=mark, process=process)
    try:
        _wait_for_start(process, log)
        yield node
    finally:
        node.kill()


def _wait_for_start(process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while "Ray runtime started" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"a node of Ray did not start within {START_TIMEOUT:g} s: {log.read_text()}")
        time.sleep(0.1)


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return bool(process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.Error:
        return []
