"""What is needed to repeat a measurement besides the machine: the program and its command."""

import platform
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rag_core import __version__
from rag_core.telemetry.scrubbing import scrub_text

PACKAGES = ("ray", "torch", "transformers", "numpy")
SOURCE = Path(__file__).parents[1]


def describe_program() -> dict[str, Any]:
    """The command without secrets, the time, the versions, and the commit if the program runs from its repository."""
    return {
        "command": shlex.join(["rag", *map(hide_secrets, sys.argv[1:])]),
        "commit": find_commit(SOURCE),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            **{"python": platform.python_version(), "rag-on-ray": __version__},
            **{name: version(name) for name in PACKAGES},
        },
    }


def hide_secrets(argument: str) -> str:
    """The argument without secrets. The value of a setting with a secret name is replaced as a whole."""
    scrubbed, hidden = scrub_text(argument), f"{argument.partition('=')[0]}=[secret]"
    return hidden if scrubbed.startswith(hidden) else scrubbed


def find_commit(folder: Path) -> str | None:
    git = shutil.which("git")
    if git is None or not (folder / ".git").exists():
        return None
    done = subprocess.run(  # noqa: S603 - the arguments are ours
        [git, "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None
