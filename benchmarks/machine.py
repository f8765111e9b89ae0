"""The first line that a benchmark prints: the machine and the command."""

import shlex
import sys
from pathlib import Path

from jobs.machine import describe_machine


def describe_gpu(device: str) -> str:
    """The name of the GPU, empty if `device` is the CPU."""
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else ""


def heading(device: str = "") -> str:
    """The machine, `device` (an accelerator, if one was used) and the command."""
    return f"{describe_machine()}{device and f', {device}'}; {command()}"


def command() -> str:
    """The command line of this process, quoted for a shell."""
    return shlex.join(["python", "-m", f"benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]])
