"""Builds a target of cluster/docker/Dockerfile in a chroot and runs commands in it, as root, with mmdebstrap.

    python -m tools.image build --target cpu
    python -m tools.image run --volume /tmp/home -- rag --version

The base image is Debian 12 with its Python 3.11. Docker's official image of Python, which the Dockerfile names, needs a
registry. `RUN` sees the package indexes of this machine's pip configuration. `run` is as strict as the chart and the
Compose file: a read-only root, the user of the image, no capabilities, and writable folders only at the volumes of the
image, /tmp and /dev/shm. The command gets the variables of the image, and those of this process that begin with RAG_.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.image.build import Builder, Image
from tools.image.dockerfile import parse_dockerfile, read_patterns
from tools.image.layers import mount_layers

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "image"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RELEASE = "bookworm"
PACKAGES = ("python3.11", "python3.11-venv", "ca-certificates")
UNSHARED = "IMAGE_TOOL_UNSHARED"
"""Set in the process that has namespaces of its own, whose mounts and processes end with it."""


PROGRAMS = {"mmdebstrap": "mmdebstrap", "unshare": "util-linux", "setpriv": "util-linux", "ip": "iproute2"}
"""The programs that this machine must have, with their packages in Debian."""


def check_machine() -> None:
    """Exits if this machine cannot build images."""
    if os.geteuid():
        sys.exit("error: only root can build images, because their layers are mounted")
    if missing := {package for program, package in PROGRAMS.items() if not shutil.which(program)}:
        sys.exit(f"error: programs are missing: apt-get install {' '.join(sorted(missing))}")


def build(target: str) -> Image:
    """The image of the target. torch comes from the configured indexes, not from PyTorch's."""
    settings = pip_settings()
    shared = local_paths(settings)
    builder = Builder(
        dockerfile=parse_dockerfile((ROOT / "cluster" / "docker" / "Dockerfile").read_text()),
        context=ROOT,
        ignored=read_patterns((ROOT / ".dockerignore").read_text()),
        folder=FOLDER,
        bottom=Image((make_bottom(shared),), {"PATH": DEFAULT_PATH}),
        build_arguments={"TORCH_INDEX": ""},
        shared=shared,
        environment=settings,
    )
    return builder.build(target)


def make_bottom(shared: tuple[Path, ...]) -> Path:
    """A Debian with Python at the path that it has in the official image, and a place for each shared path."""
    folder = FOLDER / "debian"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        include = f"--include={','.join(PACKAGES)}"
        subprocess.run(["mmdebstrap", "--variant=minbase", include, RELEASE, str(unfinished)], check=True)
        (unfinished / "usr/local/bin/python").symlink_to("/usr/bin/python3.11")
        unfinished.rename(folder)
    for path in shared:
        place = folder / str(path).lstrip("/")
        (place if path.is_dir() else place.parent).mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            place.touch()
    return folder


def pip_settings() -> dict[str, str]:
    """pip's configuration on this machine as variables of pip, such as PIP_INDEX_URL."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    settings = {}
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        key, _, value = line.partition("=")
        settings["PIP_" + key.rpartition(".")[2].upper().replace("-", "_")] = value.strip("'").replace("\\n", " ")
    return settings


def local_paths(settings: dict[str, str]) -> tuple[Path, ...]:
    """The files and folders of this machine that the settings name. The files of an index can be next to it."""
    words = [word for value in settings.values() for word in value.split()]
    files = [Path(word) for word in words if word.startswith("/")]
    indexes = [Path(word.removeprefix("file://")).parent for word in words if word.startswith("file:///")]
    return tuple(sorted({path for path in files + indexes if path.exists()}))


def run(image: Image, command: list[str], volume: Path, is_offline: bool) -> int:
    """The exit code of the command in the image."""
    settings = {name: value for name, value in os.environ.items() if name.startswith("RAG_")}
    folder = Path(tempfile.mkdtemp(prefix="root-", dir=FOLDER))  # of this run: others can run at the same time
    with mount_layers(folder, image.layers) as root:
        for path in ("/tmp", "/dev/shm"):  # noqa: S108 - of the image
            root.mount_memory(path)
        for path in image.volumes:
            root.mount(volume, path)
        return root.run(command, {**image.environment, **settings}, image.workdir, image.user, is_offline)


def main() -> int:
    options = parse_arguments()
    check_machine()
    try:
        image = build(options.target)
    except (OSError, RuntimeError, ValueError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: cannot build {options.target}: {error}")
    if options.action == "build":
        return 0
    command = options.command or [*image.entrypoint, *image.cmd]
    return run(image, command, options.volume, options.offline)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    target = argparse.ArgumentParser(add_help=False)
    target.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    actions.add_parser("build", parents=[target], help="build the layers of a target")
    action = actions.add_parser("run", parents=[target], help="run a command in the image")
    action.add_argument("--volume", type=Path, required=True, help="the folder at the volumes of the image")
    action.add_argument("--offline", action="store_true", help="with a loopback interface only")
    action.add_argument("command", nargs="*", help="by default that of the image")
    return parser.parse_args()


if __name__ == "__main__":
    if UNSHARED not in os.environ:
        command = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            sys.executable,
            "-m",
            "tools.image",
            *sys.argv[1:],
        ]
        sys.exit(subprocess.run(command, env={**os.environ, UNSHARED: "1"}, check=False).returncode)
    sys.exit(main())
