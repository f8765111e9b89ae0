"""Copies of a model that share its weights, one per thread: tokenizers and modules are not thread-safe."""

import io
import pickle
from collections.abc import Sequence
from typing import TypeVar

import torch

M = TypeVar("M")


def copy_for_threads(model: M, count: int) -> Sequence[M]:
    """Returns the model itself and `count` - 1 copies.

    With several copies, torch is limited to one thread in the whole process. Torch's own threads share a batch, and
    take longer than the same number of threads with a batch each.
    """
    if count == 1:
        return [model]
    torch.set_num_threads(1)
    file = io.BytesIO()
    pickler = _TensorlessPickler(file)
    pickler.dump(model)
    return [model, *(_SharingUnpickler(file, pickler.tensors).load() for _ in range(count - 1))]


class _TensorlessPickler(pickle.Pickler):
    """A pickler that collects the tensors instead of writing them."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: dict[int, torch.Tensor] = {}

    def persistent_id(self, part: object) -> int | None:
        if not isinstance(part, torch.Tensor):
            return None
        self.tensors[id(part)] = part
        return id(part)


class _SharingUnpickler(pickle.Unpickler):
    """An unpickler that uses the collected tensors themselves."""

    def __init__(self, file: io.BytesIO, tensors: dict[int, torch.Tensor]) -> None:
        file.seek(0)
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid: int) -> torch.Tensor:
        return self._tensors[pid]
