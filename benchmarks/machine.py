"""On what a benchmark ran, for the first line that it prints."""

import os
import platform


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, {memory} GiB"
