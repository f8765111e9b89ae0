"""Parts of a very large document: drafts that several processes can embed at the same time.

Finished parts are stored as bytes until the others arrive, and are then joined.
"""

import io
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rag_core.types import Draft

OWN_MODULE = "rag_core.types"
FOREIGN_CLASSES = {
    ("uuid", "UUID"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
}


def split_draft(draft: Draft, max_chunks: int) -> list[Draft]:
    """Parts of at most `max_chunks` chunks. The first one has the document and the seconds spent so far."""
    count = -(-len(draft.chunks) // max_chunks)
    if count < 2:
        return [draft]
    later = replace(draft, document=None, seconds={}, times={})
    return [
        replace(
            later if number else draft,
            chunks=draft.chunks[first : first + max_chunks],
            vectors=None if draft.vectors is None else draft.vectors[first : first + max_chunks],
            part=(number, count),
        )
        for number, first in enumerate(range(0, len(draft.chunks), max_chunks))
    ]


def join_drafts(parts: Sequence[Draft]) -> Draft:
    """The whole draft from all its parts, in order. If one of the parts has failed, the draft has failed."""
    first = replace(parts[0], part=(0, 1))
    if failure := next((part.failure for part in parts if part.failure), None):
        return first.with_failure(failure)
    stages = {stage for part in parts for stage in part.seconds}
    times = {stage: [part.times[stage] for part in parts if stage in part.times] for stage in stages}
    return replace(
        first,
        chunks=tuple(chunk for part in parts for chunk in part.chunks),
        vectors=np.concatenate([part.vectors for part in parts if part.vectors is not None]),
        embedded=sum(part.embedded for part in parts),
        weights=tuple(weights for part in parts for weights in part.weights),
        seconds={stage: sum(part.seconds.get(stage, 0.0) for part in parts) for stage in stages},
        times={stage: (min(spans)[0], max(end for _, end in spans)) for stage, spans in times.items() if spans},
    )


def dump_draft(draft: Draft) -> bytes:
    return pickle.dumps(draft, protocol=pickle.HIGHEST_PROTOCOL)


def load_draft(body: bytes) -> Draft:
    """The draft that `dump_draft` wrote. Raises UnpicklingError if the bytes name any other class or function.

    Write access to the store is therefore not enough to run code in a worker.
    """
    draft: Draft = _Unpickler(io.BytesIO(body)).load()
    return draft


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_own = module == OWN_MODULE and "." not in name and isinstance(super().find_class(module, name), type)
        if is_own or (module, name) in FOREIGN_CLASSES:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a stored draft must not contain {module}.{name}")
