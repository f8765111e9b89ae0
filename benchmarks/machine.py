"""On what a benchmark ran and by which command: the first line that it prints."""

import os
import platform
import shlex
import sys
from pathlib import Path

CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""Those that this process may use, where the system tells."""


def heading(device: str = "") -> str:
    """`device` is what else it ran on."""
    return f"{machine()}{device and f', {device}'}; {command()}"


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return f"{platform.processor() or platform.machine()}, {CPUS} CPUs, {memory} GiB"


def command() -> str:
    """As it was given."""
    return shlex.join(["python", "-m", f"benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]])
