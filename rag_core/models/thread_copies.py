"""Copies of a model that share its weights, one a thread: tokenizers and modules are not safe for several."""

import io
import pickle
from collections.abc import Sequence
from typing import TypeVar

import torch

M = TypeVar("M")


def copies(model: M, count: int) -> Sequence[M]:
    """The model itself, and others.

    Of more than one the whole process is set to one of torch's own threads: those share a batch, and take longer than
    as many threads that have a batch each.
    """
    if count == 1:
        return [model]
    torch.set_num_threads(1)
    file = io.BytesIO()
    rest = _Rest(file)
    rest.dump(model)
    return [model, *(_Whole(file, rest.tensors).load() for _ in range(count - 1))]


class _Rest(pickle.Pickler):
    """All but the tensors."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: dict[int, torch.Tensor] = {}

    def persistent_id(self, each: object) -> int | None:
        if not isinstance(each, torch.Tensor):
            return None
        self.tensors[id(each)] = each
        return id(each)


class _Whole(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: dict[int, torch.Tensor]) -> None:
        file.seek(0)
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid: int) -> torch.Tensor:
        return self._tensors[pid]
