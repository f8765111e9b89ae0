"""How models are loaded: what cannot be used is a ModelError that says what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rag_core.errors import ModelError


@contextmanager
def loading(folder: Path, role: str) -> Iterator[None]:
    """ModelError if the block cannot make of the folder's files what `role` says."""
    from safetensors import SafetensorError
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(f"{folder} cannot be loaded as a {role}: give a folder that is one ({reason})") from error


def refuse_missing_gpu(section: str, device: str) -> None:
    """ModelError if `device`, which that section of the settings names, is a GPU that this process cannot use."""
    if device == "cpu":
        return
    import torch

    kind, _, number = device.partition(":")
    gpus = _gpus(kind)
    if int(number or 0) >= gpus:
        raise ModelError(
            f"{section}.device is {device}, but PyTorch {torch.__version__} finds {gpus or 'no'} GPU here: "
            f"set {section}.device to cpu, or install a driver and PyTorch for CUDA"
        )


def _gpus(kind: str) -> int:
    """Of `cuda` or `mps`."""
    import torch

    if kind == "mps":
        return int(torch.backends.mps.is_available())
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
