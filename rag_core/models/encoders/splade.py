"""SPLADE: a masked language model weighs the terms of a text, and adds others (Formal et al., SPLADE v2)."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Literal

import numpy as np
import torch

from rag_core.errors import ModelError
from rag_core.models.encoders.precision import choose_dtype
from rag_core.models.loading import translate_load_errors
from rag_core.types import TermWeights

UNSTORABLE_IN_TERMS = ("\n", "\0")
"""Characters that the lexical index cannot have in a term, because it stores terms as lines."""


class SpladeEncoder:
    """An encoder that gives each term the highest of its weights at all positions in the text.

    So a document that is longer than the model's window can be encoded in pieces, whose highest weights count.
    """

    def __init__(
        self,
        folder: Path,
        precision: Literal["auto", "bf16", "fp32"] = "auto",
        device: str = "cpu",
        batch_size: int = 8,
        threads: int = 1,
    ) -> None:
        """Loads the model. Raises ModelError if the folder does not contain a SPLADE model."""
        options = {"dtype": choose_dtype(precision, device)}
        with translate_load_errors(folder, "SPLADE model"):
            from sentence_transformers import SparseEncoder
            from sentence_transformers.sparse_encoder.modules import SpladePooling

            self._model = SparseEncoder(str(folder), device=device, model_kwargs=options, local_files_only=True)
        if not any(isinstance(module, SpladePooling) for module in self._model.modules()):
            raise ModelError(f"{folder} is not a SPLADE model: give one with a masked language model and SpladePooling")
        self._batch_size, self._threads, self._lock = batch_size, threads, Lock()
        self._piece_tokens = self._model.max_seq_length - self._model.tokenizer.num_special_tokens_to_add()

    def weigh(self, texts: Sequence[str]) -> list[TermWeights]:
        pieces = [list(self._split_text(text)) for text in texts]
        former_threads = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            weights = self._encode(self._model.encode_document, [piece for parts in pieces for piece in parts])
        finally:  # other models in this process need another number
            torch.set_num_threads(former_threads)
        remaining = iter(weights)
        return [merge_weights([next(remaining) for _ in parts]) for parts in pieces]

    def weigh_questions(self, texts: Sequence[str]) -> list[TermWeights]:
        """Weighs each text; a text that is longer than the window is cut off."""
        return self._encode(self._model.encode_query, list(texts))

    def _encode(self, encode: Callable[..., torch.Tensor], texts: list[str]) -> list[TermWeights]:
        if not texts:
            return []
        with self._lock:  # a tokenizer serves one thread at a time
            rows = encode(texts, batch_size=self._batch_size, show_progress_bar=False, save_to_cpu=True).coalesce()
        row, term = rows.indices().numpy()
        weight = rows.values().float().numpy()
        numbers, term = np.unique(term, return_inverse=True)
        terms = self._model.tokenizer.convert_ids_to_tokens(numbers.tolist())
        # the model can have outputs without a term in the tokenizer: their name is None
        selected = (weight > 0) & np.array([is_storable(name) for name in terms], np.bool_)[term]
        ends = np.searchsorted(row[selected], np.arange(1, len(texts)))
        columns = zip(np.split(term[selected], ends), np.split(weight[selected], ends), strict=True)
        return [TermWeights(tuple(terms[index] for index in indexes), weights) for indexes, weights in columns]

    def _split_text(self, text: str) -> Iterator[str]:
        """Yields as few pieces as fit the window. They are cut between words if a piece contains a blank."""
        ends = self._token_ends(text)
        start = 0
        while (last := bisect_right(ends, start) + self._piece_tokens) < len(ends):
            blank = text.rfind(" ", start + 1, ends[last - 1] + 1)
            end = blank if blank > 0 else ends[last - 1]
            yield text[start:end]
            start = end
        yield text[start:]

    def _token_ends(self, text: str) -> list[int]:
        """The offset at which each token ends in `text`."""
        with self._lock:
            encoding = self._model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [end for _, end in encoding["offset_mapping"]]


def is_storable(term: str | None) -> bool:
    """False if the lexical index cannot have the term, or if it is empty or None."""
    return term not in ("", None) and not any(mark in term for mark in UNSTORABLE_IN_TERMS)


def merge_weights(pieces: Sequence[TermWeights]) -> TermWeights:
    """The weights of a text from those of its pieces: of each term the highest."""
    if len(pieces) == 1:
        return pieces[0]
    weights: dict[str, np.float32] = {}
    for piece in pieces:
        for term, weight in zip(piece.terms, piece.weights, strict=True):
            weights[term] = max(weight, weights.get(term, weight))
    return TermWeights(tuple(weights), np.array(list(weights.values()), np.float32))
