"""A very large document as several drafts, so that several processes embed it, and as bytes that wait for the rest."""

import io
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rag_core.types import Draft

OUR_TYPES = "rag_core.types"
FOREIGN = {
    ("uuid", "UUID"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
}


def split(draft: Draft, most: int) -> list[Draft]:
    """Parts of at most that many chunks. The first carries the document, and the seconds so far."""
    count = -(-len(draft.chunks) // most)
    if count < 2:
        return [draft]
    rest = replace(draft, document=None, seconds={})
    return [
        replace(rest if part else draft, chunks=draft.chunks[part * most : (part + 1) * most], part=(part, count))
        for part in range(count)
    ]


def joined(parts: Sequence[Draft]) -> Draft:
    """The whole of all its parts, which come in their order. It failed if one of them did."""
    first = replace(parts[0], part=(0, 1))
    if failure := next((part.failure for part in parts if part.failure), None):
        return first.with_failure(failure)
    whole = replace(
        first,
        chunks=tuple(chunk for part in parts for chunk in part.chunks),
        vectors=np.concatenate([part.vectors for part in parts if part.vectors is not None]),
        embedded=sum(part.embedded for part in parts),
        weights=tuple(weights for part in parts for weights in part.weights),
    )
    for part in parts[1:]:
        for stage, seconds in part.seconds.items():
            whole = whole.with_stage_time(stage, seconds)
    return whole


def dumped(draft: Draft) -> bytes:
    return pickle.dumps(draft, protocol=pickle.HIGHEST_PROTOCOL)


def loaded(body: bytes) -> Draft:
    """What `dumped` wrote. UnpicklingError for bytes that name anything else: writing to the store runs no code."""
    draft: Draft = _Unpickler(io.BytesIO(body)).load()
    return draft


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        ours = module == OUR_TYPES and "." not in name and isinstance(super().find_class(module, name), type)
        if ours or (module, name) in FOREIGN:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a draft")
