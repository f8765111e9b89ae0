import subprocess
import sys

import pytest
import torch

from rag_core.errors import ModelError
from rag_core.models.loading import check_gpu


def machine(monkeypatch: pytest.MonkeyPatch, gpus: int, mps: bool = False) -> None:
    monkeypatch.setattr("rag_core.models.loading.has_cuda_gpu", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1", "mps"])
def test_an_existing_device_is_not_refused(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    machine(monkeypatch, gpus=2, mps=True)
    check_gpu("embedding", device)


@pytest.mark.parametrize(
    ("device", "gpus", "count_text"),
    [("cuda", 0, "no"), ("cuda:1", 1, "1"), ("cuda:9", 2, "2"), ("mps", 1, "no")],
)
def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch, device: str, gpus: int, count_text: str
) -> None:
    machine(monkeypatch, gpus)
    with pytest.raises(ModelError, match=f"embedding.device is {device}, but PyTorch .* finds {count_text} GPU: "):
        check_gpu("embedding", device)


def test_a_machine_without_a_driver_is_refused_without_importing_torch() -> None:
    script = """
import sys
from rag_core.errors import ModelError
from rag_core.models import loading
loading.has_cuda_gpu = lambda: False
try:
    loading.check_gpu("embedding", "cuda")
except ModelError:
    print("torch" in sys.modules)
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert process.stdout == "False\n"
