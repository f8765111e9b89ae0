"""The first line that a benchmark prints: the machine and the command."""

import os
import platform
import shlex
import sys
from pathlib import Path

CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""The CPUs that this process can use; all CPUs if the system does not report them."""


def heading(device: str = "") -> str:
    """The machine, `device` (an accelerator, if one was used) and the command."""
    return f"{machine()}{device and f', {device}'}; {command()}"


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return f"{platform.processor() or platform.machine()}, {CPUS} CPUs, {memory} GiB"


def command() -> str:
    """The command line of this process, quoted for a shell."""
    return shlex.join(["python", "-m", f"benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]])
