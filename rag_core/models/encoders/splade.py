"""SPLADE: the terms that a masked language model finds in a text or adds to it, weighted (Formal et al., SPLADE v2)."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from rag_core.errors import ModelError
from rag_core.models.encoders.precision import dtype
from rag_core.models.loading import loading
from rag_core.types import TermWeights

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

UNSTORABLE = ("\n", "\0")
"""What the lexical index keeps out of its terms: it stores them in lines."""


class SpladeEncoder:
    """A term's weight is the highest of any place in the text. So a document that is longer than the model's window is
    read in pieces, and has the highest weight of any of them."""

    def __init__(
        self,
        folder: Path,
        precision: Literal["auto", "bf16", "fp32"] = "auto",
        device: str = "cpu",
        batch_size: int = 8,
        threads: int = 1,
    ) -> None:
        """ModelError if the folder holds no SPLADE model."""
        self._model = _loaded(folder, dtype(precision, device), device)
        self._batch_size, self._threads, self._lock = batch_size, threads, Lock()
        self._room = self._model.max_seq_length - self._model.tokenizer.num_special_tokens_to_add()

    def weigh(self, texts: Sequence[str]) -> list[TermWeights]:
        pieces = [list(self._pieces(text)) for text in texts]
        with _torch_threads(self._threads):
            weights = self._encoded(self._model.encode_document, [piece for own in pieces for piece in own])
        of_pieces = iter(weights)
        return [_highest([next(of_pieces) for _ in own]) for own in pieces]

    def weigh_questions(self, texts: Sequence[str]) -> list[TermWeights]:
        """What is longer than the window is cut at its end."""
        return self._encoded(self._model.encode_query, list(texts))

    def _encoded(self, encode: Callable[..., torch.Tensor], texts: list[str]) -> list[TermWeights]:
        if not texts:
            return []
        with self._lock:  # a tokenizer serves one thread at a time
            rows = encode(texts, batch_size=self._batch_size, show_progress_bar=False, save_to_cpu=True).coalesce()
        row, term = rows.indices().numpy()
        weight = rows.values().float().numpy()
        numbers, term = np.unique(term, return_inverse=True)
        terms = self._model.tokenizer.convert_ids_to_tokens(numbers.tolist())
        kept = (weight > 0) & np.array([_storable(each) for each in terms], np.bool_)[term]
        ends = np.searchsorted(row[kept], np.arange(1, len(texts)))
        columns = zip(np.split(term[kept], ends), np.split(weight[kept], ends), strict=True)
        return [TermWeights(tuple(terms[place] for place in own), weights) for own, weights in columns]

    def _pieces(self, text: str) -> Iterator[str]:
        """As few as fit the window, cut between words where there is a blank between any."""
        ends = self._ends(text)
        start = 0
        while (last := bisect_right(ends, start) + self._room) < len(ends):
            blank = text.rfind(" ", start + 1, ends[last - 1] + 1)
            end = blank if blank > 0 else ends[last - 1]
            yield text[start:end]
            start = end
        yield text[start:]

    def _ends(self, text: str) -> list[int]:
        """Where each token ends in `text`."""
        with self._lock:
            read = self._model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [end for _, end in read["offset_mapping"]]


def _highest(pieces: Sequence[TermWeights]) -> TermWeights:
    if len(pieces) == 1:
        return pieces[0]
    weights: dict[str, np.float32] = {}
    for piece in pieces:
        for term, weight in zip(piece.terms, piece.weights, strict=True):
            weights[term] = max(weight, weights.get(term, weight))
    return TermWeights(tuple(weights), np.array(list(weights.values()), np.float32))


def _storable(term: str | None) -> bool:
    """A model may have more places for terms than its tokenizer has terms."""
    return bool(term) and not any(character in str(term) for character in UNSTORABLE)


def _loaded(folder: Path, weights: torch.dtype, device: str) -> "SparseEncoder":
    with loading(folder, "SPLADE model"):
        from sentence_transformers import SparseEncoder
        from sentence_transformers.sparse_encoder.modules import SpladePooling

        model = SparseEncoder(str(folder), device=device, model_kwargs={"dtype": weights}, local_files_only=True)
    if not any(isinstance(module, SpladePooling) for module in model.modules()):
        raise ModelError(f"{folder} is no SPLADE model: give one with a masked language model and SpladePooling")
    return model


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    """For a while: other models in this process have their own way to use the processors."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
