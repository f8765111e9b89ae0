"""Checks and error messages for the loading of models."""

import ctypes
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from rag_core.errors import ModelError, first_line


@contextmanager
def translate_load_errors(folder: Path, role: str) -> Iterator[None]:
    """Turns the errors of a block that loads the folder's model into ModelError. `role` describes the model."""
    _import_tqdm()
    from safetensors import SafetensorError
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        raise ModelError(
            f"{folder} cannot be loaded as a {role}: give the folder of a {role} ({first_line(error)})"
        ) from error


def _import_tqdm() -> None:
    """Imports tqdm without its advice to install ipywidgets: in a notebook it gives it even if no bar is shown."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        import_module("tqdm.auto")


def has_cuda_gpu() -> bool:
    """True if PyTorch can use an NVIDIA GPU here. Asks the driver, because importing torch takes seconds."""
    if version("torch").endswith("+cpu"):
        return False
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def check_gpu(section: str, device: str) -> None:
    """Raises ModelError if `device` is a GPU that this process cannot use. `section` is the settings' section."""
    if device == "cpu":
        return
    kind, _, number = device.partition(":")
    gpus = _count_gpus(kind)
    if int(number or 0) >= gpus:
        raise ModelError(
            f"{section}.device is {device}, but PyTorch {version('torch')} finds {gpus or 'no'} GPU: "
            f"set {section}.device to cpu, or install a driver and PyTorch for CUDA"
        )


def _count_gpus(kind: str) -> int:
    if kind != "mps" and not has_cuda_gpu():
        return 0
    import torch

    if kind == "mps":
        return int(torch.backends.mps.is_available())
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
