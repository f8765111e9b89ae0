"""The first process of a container: `python container_start.py SPEC`, in mount and process namespaces of its own.

It makes the root file system, and becomes the container's command. SPEC is a file with a `ContainerSpec` in JSON.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from tools.image.layers import SETPRIV, mount_layers


def main(file: str) -> None:
    spec: dict[str, Any] = json.loads(Path(file).read_text())
    folder = Path(spec["folder"])
    with mount_layers(folder / "root", [Path("/"), folder / "points"]) as root:
        for path, options in spec["memory"].items():
            root.mount_memory(path, options)
        for path, source in spec["mounts"].items():
            if any(path.startswith(f"{memory}/") for memory in spec["memory"]):
                root.make_folder(path)
            root.mount(Path(source), path, read_only=path in spec["read_only"])
        os.execvp("chroot", ["chroot", str(root.folder), *spec["command"]])  # noqa: S606 - it needs no shell


def enter_command(command: list[str], environment: dict[str, str], workdir: str, user: int) -> list[str]:
    """The command as the user, without capabilities, with these variables only. It ends with its parent process."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    drop = [*SETPRIV, "--pdeathsig=KILL", f"--reuid={user}", f"--regid={user}", "--"]
    return ["env", "--ignore-environment", f"--chdir={workdir}", *variables, *drop, *command]


if __name__ == "__main__":
    main(sys.argv[1])
