"""The jobs as programs: a job that is submitted as a module runs the command of that name."""

import os
import sys
from typing import NoReturn


def run_command(name: str) -> NoReturn:
    """Replaces this process by `rag NAME` with the same arguments. It is not imported: it is above the jobs."""
    os.execv(sys.executable, [sys.executable, "-m", "rag_cli", name, *sys.argv[1:]])  # noqa: S606 - this program
