"""The services of the Compose file, run as containers on this machine."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from containers import USER, Container, ContainerSpec, Network, image_environment
from debian import find_program
from documents import ROOT
from postgres_pod import postgres_spec
from waiting import wait_until

FILE = ROOT / "cluster" / "compose.yaml"
SERVICES: Mapping[str, Mapping[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")
NOBODY = 65534
"""The user of Prometheus' image."""
START_TIMEOUT = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The services in one network. `secrets`: the folder that `cluster/secrets.sh` has written."""

    network: Network
    secrets: Path

    def start(self, name: str) -> Container:
        """Starts a service, and waits until it is healthy, or has ended if it is a task."""
        container = self.run(name)
        if SERVICES[name]["restart"] == "no":
            assert container.wait() == 0, container.read_log()
        else:
            wait_until(lambda: self.is_healthy(name, container), START_TIMEOUT)
        return container

    def is_healthy(self, name: str, container: Container) -> bool:
        assert container.process.poll() is None, container.read_log()
        kind, *command = SERVICES[name]["healthcheck"]["test"]
        assert kind == "CMD"
        return container.execute(*command).returncode == 0

    def run(self, name: str, command: Sequence[str] = ()) -> Container:
        """Starts a service. `command` replaces its own, as `docker compose run` does."""
        service = SERVICES[name]
        mounts = {path: source for path, source, _ in self._mounts(service)}
        changed = self._specify(name, service, [*(command or service.get("command", []))])
        return self.network.run(
            service.get("hostname", name),
            ContainerSpec(
                command=changed.command,
                environment=changed.environment,
                mounts={**mounts, **changed.mounts},
                read_only=[path for path, _, mode in self._mounts(service) if mode == "ro"],
                memory={**changed.memory, **dict(_split_memory(service))},
                user=changed.user,
                workdir=changed.workdir,
            ),
        )

    def _specify(self, name: str, service: Mapping[str, Any], command: list[str]) -> ContainerSpec:
        """What the service's image decides: the program, the variables, the user."""
        match name:
            case "postgres":
                return postgres_spec(self.network, service["environment"], self.secrets / "postgres_password")
            case "prometheus":
                return ContainerSpec(
                    command=[str(find_program("prometheus")), *command],
                    environment={"PATH": "/usr/bin:/bin"},
                    user=NOBODY,
                    workdir="/",
                )
        return ContainerSpec(
            command=[*service.get("entrypoint", ["rag"]), *command, *_cpu_option(service, command)],
            environment={**image_environment(), **service["environment"]},
        )

    def _mounts(self, service: Mapping[str, Any]) -> list[tuple[str, Path, str]]:
        """The path, the source and the mode of each volume and secret of the project's own images."""
        mounts = []
        for volume in service.get("volumes", []):
            source, path, *mode = DEFAULT.sub(r"\1", volume).split(":")
            folder = FILE.parent / source if source.startswith(".") else self._make_volume(source)
            mounts.append((path, folder, mode[0] if mode else "rw"))
        secrets = [secret for secret in service.get("secrets", []) if not isinstance(secret, str)]
        return mounts + [(secret["target"], self.secrets / secret["source"], "ro") for secret in secrets]

    def _make_volume(self, name: str) -> Path:
        folder = self.network.folder / f"volume-{name}"
        folder.mkdir(exist_ok=True)
        owner = NOBODY if name == "prometheus" else USER
        os.chown(folder, owner, owner)
        return folder


def _cpu_option(service: Mapping[str, Any], command: Sequence[str]) -> list[str]:
    """The CPUs of a node of Ray, which it would read from the limit of its container."""
    is_node = service.get("entrypoint") == ["ray", "start"]
    if not is_node or any(word.startswith("--num-cpus") for word in command):
        return []
    return [f"--num-cpus={service['deploy']['resources']['limits']['cpus']}"]


def _split_memory(service: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The paths and the options of the file systems in memory, with that of `shm_size`."""
    size = service.get("shm_size", "64mb").removesuffix("b")
    parts = [line.partition(":") for line in service.get("tmpfs", [])]
    memory = [(path, options or "mode=1777") for path, _, options in parts]
    return [*memory, ("/dev/shm", f"mode=1777,size={size}")]  # noqa: S108 - of the container
