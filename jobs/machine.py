"""The machine that a measurement ran on."""

import os
import platform

CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""The CPUs that this process can use; all CPUs if the system does not report them."""


def describe_machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return f"{platform.processor() or platform.machine()}, {CPUS} CPUs, {memory} GiB"
