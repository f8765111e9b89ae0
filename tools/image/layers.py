"""Layers of file systems, stacked by overlayfs, and commands that run in them by chroot.

Mounts and processes belong to namespaces of the process that imports this module: they end with it.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

OFFLINE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""Runs a command with a loopback interface only."""
SETPRIV = ("setpriv", "--clear-groups", "--no-new-privs", "--bounding-set=-all")


@dataclass(frozen=True, slots=True)
class Root:
    """A mounted stack of layers."""

    folder: Path

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], workdir: str, user: str, is_offline: bool = False
    ) -> int:
        """The exit code of the command. Other users than root have no capabilities and cannot gain any."""
        uid, _, gid = user.partition(":")
        drop = [] if uid == "0" else [*SETPRIV, f"--reuid={uid}", f"--regid={gid or uid}", "--"]
        enter = ["chroot", str(self.folder), "env", "--ignore-environment", f"--chdir={workdir}"]
        variables = [f"{name}={value}" for name, value in environment.items()]
        isolate = OFFLINE if is_offline else ()
        return subprocess.run([*isolate, *enter, *variables, *drop, *command], check=False).returncode

    def mount(self, source: Path, path: str, read_only: bool = False) -> None:
        """Shows a folder or file of this machine at the path, which must exist in the root."""
        target = str(self.folder / path.lstrip("/"))
        subprocess.run(["mount", "--rbind", str(source), target], check=True)
        if read_only:
            subprocess.run(["mount", "-o", "remount,bind,ro", target], check=True)

    def mount_memory(self, path: str, options: str = "mode=1777") -> None:
        """Mounts a writable folder in memory, as `--tmpfs` of a container runtime does."""
        target = str(self.folder / path.lstrip("/"))
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", target], check=True)

    def make_folder(self, path: str) -> None:
        (self.folder / path.lstrip("/")).mkdir(parents=True, exist_ok=True)


@contextmanager
def mount_layers(folder: Path, layers: Sequence[Path], upper: Path | None = None) -> Iterator[Root]:
    """`layers`: from the bottom to the top. Without `upper`, which takes all changes, the root is read-only."""
    folder.mkdir(parents=True, exist_ok=True)
    options = "lowerdir=" + ":".join(str(layer) for layer in reversed(layers))
    if upper:
        work = folder.with_name(f"{folder.name}.work")
        work.mkdir(exist_ok=True)
        options += f",upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(folder)], check=True)
    root = Root(folder)
    try:
        subprocess.run(["mount", "-t", "proc", "proc", str(folder / "proc")], check=True)
        for name in ("dev", "sys"):
            root.mount(Path("/", name), f"/{name}")
        yield root
    finally:
        subprocess.run(["umount", "--recursive", "--lazy", str(folder)], check=True)
        folder.rmdir()
        shutil.rmtree(folder.with_name(f"{folder.name}.work"), ignore_errors=True)
