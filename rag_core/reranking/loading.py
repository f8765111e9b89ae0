"""How models are loaded: what cannot be used is a ModelError that says what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rag_core.errors import ModelError


@contextmanager
def loading(folder: Path, role: str, device: str) -> Iterator[None]:
    """ModelError if the device is a GPU that this process cannot use, or if the block cannot make of the folder's
    files what `role` says."""
    from safetensors import SafetensorError
    from transformers.utils.logging import disable_progress_bar

    _refuse_missing_gpu(device)
    disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(f"{folder} cannot be loaded as a {role}: give a folder that is one ({reason})") from error


def _refuse_missing_gpu(device: str) -> None:
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(
            f"reranker.device is {device}, but PyTorch {torch.__version__} finds no GPU here: "
            "set reranker.device to cpu, or install a driver and PyTorch for CUDA"
        )
