"""Containers on this machine: namespaces, a read-only root and addresses of their own, without a container runtime.

The root shows the files of this machine, with the volumes of the container at their paths and the virtual environment
of the tests at that of the image. All this needs root, and ends with the network's process.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO
from uuid import uuid4

import psutil
import pytest
from container_start import enter_command
from documents import ROOT

from tools.image.dockerfile import parse_dockerfile, read_assignments

START = Path(__file__).with_name("container_start.py")
USER = 10001
"""The user of the image."""
WORKDIR = "/var/lib/rag"
PREFIX = "10.88.0"
"""The first three bytes of all addresses."""

FILES = {
    "hosts": "127.0.0.1 localhost\n",
    "resolv.conf": "",  # a server of names that does not answer would delay every connection
    "passwd": "root:x:0:0::/:/bin/sh\nrag:x:10001:10001::/var/lib/rag:/bin/sh\npostgres:x:10002:10002::/:/bin/sh\n",
}
"""The files of /etc that differ from those of this machine."""

WITH_TESTS = ("setpriv", "--pdeathsig", "KILL")
"""Makes a process end with that of the tests, however it ends."""

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "ip", "setpriv"))),
    reason="containers need root, util-linux and iproute2",
)


@cache
def image_environment() -> dict[str, str]:
    """The variables of the Dockerfile, and the path of this repository, which is not installed in `/opt/rag`."""
    stage = parse_dockerfile((ROOT / "cluster" / "docker" / "Dockerfile").read_text()).stage("runtime")
    assert stage
    variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    for instruction in stage.instructions:
        if instruction.name == "ENV":
            variables |= read_assignments(instruction.value, variables)
    return {**variables, "PYTHONPATH": str(ROOT)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """`mounts`: the sources on this machine, by path. `memory`: the options of file systems in memory, by path."""

    command: Sequence[str]
    environment: Mapping[str, str]
    mounts: Mapping[str, Path] = field(default_factory=dict)
    read_only: Sequence[str] = ()
    memory: Mapping[str, str] = field(default_factory=dict)
    user: int = USER
    workdir: str = WORKDIR


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A started container. `pid`: of its first process, as this machine counts."""

    name: str
    address: str
    spec: ContainerSpec
    log: Path
    process: "subprocess.Popen[bytes]"
    pid: int

    def execute(self, *command: str, timeout: float = 300) -> "subprocess.CompletedProcess[str]":
        """Runs a command in the container, as `kubectl exec` does."""
        return self._enter(
            enter_command(list(command), dict(self.spec.environment), self.spec.workdir, self.spec.user), timeout
        )

    def status(self, port: int, path: str) -> int:
        """The status of a GET request from within the container, as a probe sends it; 0 if it is refused."""
        command = [
            "curl",
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-m",
            "30",
            f"http://{self.address}:{port}{path}",
        ]
        return int(self._enter(command, 60).stdout or 0)

    def _enter(self, command: Sequence[str], timeout: float) -> "subprocess.CompletedProcess[str]":
        entered = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--uts", "--ipc", "--root", *command]
        return subprocess.run(entered, capture_output=True, text=True, check=False, timeout=timeout)

    def send(self, signal: int) -> None:
        os.kill(self.pid, signal)

    def wait(self, timeout: float = 600) -> int:
        """The exit code of the command."""
        return self.process.wait(timeout)

    def read_log(self) -> str:
        return self.log.read_text(errors="replace")

    def command_lines(self) -> list[str]:
        """The command lines of all processes of the container; none if it has ended."""
        lines: list[str] = []
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    lines.append(" ".join(process.cmdline()))
        return lines

    def kill(self) -> None:
        """Ends all its processes at once."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        self.process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A bridge for the containers. `folder`: of all their files; its path must be short."""

    folder: Path
    pid: int
    _containers: ExitStack
    _count: Iterator[int]

    def reserve_address(self, *names: str) -> str:
        """A free address, which containers reach by the names from now on."""
        address = f"{PREFIX}.{next(self._count)}"
        self.alias(address, *names)
        return address

    def alias(self, address: str, *names: str) -> None:
        with (self.folder / "hosts").open("a") as file:
            file.writelines(f"{address} {name}\n" for name in names)

    def run(self, name: str, spec: ContainerSpec, address: str = "") -> Container:
        """Starts a container. It is killed with the network."""
        address = address or self.reserve_address(name)
        holder = self._containers.enter_context(_hold_namespaces(name))
        self._connect(holder, address)
        folder = self.folder / f"{name}-{uuid4().hex[:6]}"
        file = _write_spec(folder, spec, self.folder)
        log = folder / "log"
        namespaces = ["nsenter", f"--net=/proc/{holder}/ns/net", f"--uts=/proc/{holder}/ns/uts"]
        unshare = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child"]
        with log.open("wb") as output:
            process = _start([*namespaces, *unshare, sys.executable, str(START), str(file)], output)
        container = Container(name=name, address=address, spec=spec, log=log, process=process, pid=_find_child(process))
        self._containers.callback(container.kill)
        return container

    def _connect(self, holder: int, address: str) -> None:
        link = f"veth{address.rpartition('.')[2]}"
        outer, inner = (["nsenter", f"--net=/proc/{pid}/ns/net"] for pid in (self.pid, holder))
        for command in (
            [*outer, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(holder)],
            [*outer, "ip", "link", "set", link, "master", "bridge", "up"],
            [*inner, "ip", "address", "add", f"{address}/24", "dev", "eth0"],
            [*inner, "ip", "link", "set", "eth0", "up"],
            [*inner, "ip", "route", "add", "default", "via", f"{PREFIX}.1"],
        ):
            subprocess.run(command, check=True)


@contextmanager
def run_network(folder: Path) -> Iterator[Network]:
    """Yields a network without containers. Ends all of them at the end."""
    with ExitStack() as stack:
        pid = stack.enter_context(_hold_namespaces("network"))
        for command in (
            "ip link add bridge type bridge",
            f"ip address add {PREFIX}.1/24 dev bridge",
            "ip link set bridge up",
        ):
            subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", *command.split()], check=True)
        for name, text in FILES.items():
            (folder / name).write_text(text)
        containers = stack.enter_context(ExitStack())
        yield Network(folder=folder, pid=pid, _containers=containers, _count=iter(range(2, 255)))


@contextmanager
def _hold_namespaces(name: str) -> Iterator[int]:
    """A process with a network and a host name of its own, in which only the loopback interface is up."""
    script = f"hostname {name} && ip link set lo up && echo ready && exec sleep infinity"
    with subprocess.Popen(
        [*WITH_TESTS, "unshare", "--net", "--uts", "sh", "-c", script], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.kill()


def _write_spec(folder: Path, spec: ContainerSpec, files: Path) -> Path:
    """Writes the file for `container_start.py`, and the folders at which the root shows the volumes."""
    points = folder / "points"
    environment = sys.prefix, sys.base_prefix
    mounts = {f"/etc/{name}": files / name for name in FILES} | {"/opt/rag": Path(sys.prefix), **spec.mounts}
    for path in (*environment, str(ROOT)):
        (points / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for path in (*mounts, *spec.memory, "/proc", "/dev", "/sys", spec.workdir):
        place = points / path.lstrip("/")
        if Path(mounts.get(path, "/")).is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    for place in (points, *points.rglob("*")):
        place.chmod(0o755)
    file = folder / "spec.json"
    file.write_text(
        json.dumps(
            {
                "folder": str(folder),
                "memory": dict(spec.memory),
                "mounts": {path: str(source) for path, source in mounts.items()},
                "read_only": ["/opt/rag", *spec.read_only],
                "command": enter_command(list(spec.command), dict(spec.environment), spec.workdir, spec.user),
            }
        )
    )
    return file


def _start(command: Sequence[str], output: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Starts a container's first process, with this repository on its path and no other variables of the tests."""
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*WITH_TESTS, *command], env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )


def _find_child(process: "subprocess.Popen[bytes]") -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if children := psutil.Process(process.pid).children():
            return int(children[0].pid)
        time.sleep(0.01)
    raise AssertionError(f"the container did not start, exit code {process.poll()}")
