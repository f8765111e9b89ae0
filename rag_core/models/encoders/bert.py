"""Sentence encoders with the architecture of BERT or RoBERTa. They start in a third of sentence-transformers' time."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import torch
from tokenizers import Encoding
from torch import Tensor

from rag_core.models.encoders.bert_layers import BATCH_TOKENS, Weights, read_weights
from rag_core.models.encoders.bert_runs import forward_runs
from rag_core.models.encoders.model_files import read_pooling, read_window
from rag_core.models.encoders.precision import choose_dtype, has_fast_bf16
from rag_core.models.encoders.token_batches import Schedule, split_into_batches
from rag_core.models.encoders.tokens import load_tokenizer
from rag_core.types import Matrix

A = TypeVar("A")
B = TypeVar("B")
Forward: TypeAlias = Callable[[Sequence[Sequence[int]], Weights, str], Tensor]


RUNS, PACKED = Schedule(BATCH_TOKENS, 256), Schedule(32768, 32768)
"""The schedules of `forward_runs` and `forward_packed`. An H100 takes half as long again with batches of 8,192 tokens,
and gains little from more than 32,768."""


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """The vectors of a text's tokens, without the special ones.

    `rows` have length 1; `spans` are the positions of the tokens in the text.
    """

    rows: Matrix
    spans: tuple[tuple[int, int], ...]


class BertEncoder:
    def __init__(
        self,
        folder: Path,
        precision: Literal["auto", "bf16", "fp32"] = "auto",
        device: str = "cpu",
        document_prompt: str = "",
        query_prompt: str = "",
        threads: int = 1,
    ) -> None:
        """Loads the model. Raises ModelError if it is not of this architecture.

        Each of the `threads` encodes a batch; with a GPU they split texts into tokens. Torch's own threads, which share
        a batch, take a third longer. So torch is limited to one thread in the whole process.
        """
        torch.set_num_threads(1)
        dtype = choose_dtype(precision, device)
        self._weights, self._pooling = read_weights(folder, dtype, device), read_pooling(folder)[0]
        self._tokenizer = load_tokenizer(folder)
        self._tokenizer.enable_truncation(read_window(folder))
        self._schedule, self._forward = RUNS, forward_runs
        if device.startswith("cuda") and dtype == torch.bfloat16 and has_fast_bf16(device):
            from rag_core.models.encoders.bert_packed import forward_packed

            self._schedule, self._forward = PACKED, forward_packed
        self._document_prompt, self._query_prompt = document_prompt, query_prompt
        self._threads, self._pool = threads, ThreadPoolExecutor(threads)

    def embed(self, texts: Sequence[str]) -> Matrix:
        return self._encode([self._document_prompt + text for text in texts])

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        return self._encode([self._query_prompt + text for text in texts])

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Returns one value per text, in the order given. Texts longer than the window are encoded in pieces."""
        encodings = [self._tokenizer.encode(text) for text in texts]
        texts_pieces = [[encoding, *encoding.overflowing] for encoding in encodings]
        tokens = [piece.ids for pieces in texts_pieces for piece in pieces]
        rows: list[Matrix] = [np.empty((0, self._dimension), np.float32)] * len(tokens)
        for batch in split_into_batches([len(ids) for ids in tokens], self._schedule):
            vectors = self._forward_batch("none", [tokens[index] for index in batch])
            ends = np.cumsum([len(tokens[index]) for index in batch])[:-1]
            for index, piece_rows in zip(batch, np.split(vectors, ends), strict=True):
                rows[index] = piece_rows
        remaining = iter(rows)
        return [_join_pieces([(piece, next(remaining)) for piece in pieces]) for pieces in texts_pieces]

    def _encode(self, texts: list[str]) -> Matrix:
        size = max(1, ceil(len(texts) / self._threads))
        parts = [texts[first : first + size] for first in range(0, len(texts), size)]
        tokenize = self._tokenizer.encode_batch_fast
        tokens = list(
            chain.from_iterable(self._map_parts(lambda part: [encoding.ids for encoding in tokenize(part)], parts))
        )
        rows = np.empty((len(texts), self._dimension), np.float32)
        batches = list(split_into_batches([len(ids) for ids in tokens], self._schedule, self._threads))
        encoded = self._map_parts(
            partial(self._forward_batch, self._pooling), [[tokens[index] for index in batch] for batch in batches]
        )
        for batch, vectors in zip(batches, encoded, strict=True):
            rows[batch] = vectors
        return rows

    def _map_parts(self, work: Callable[[A], B], parts: Sequence[A]) -> Iterator[B]:
        """Processes the parts in the pool. A single part stays in this thread: another would only delay a question."""
        return self._pool.map(work, parts) if len(parts) > 1 else map(work, parts)

    @torch.inference_mode()
    def _forward_batch(self, pooling: str, batch: list[list[int]]) -> Matrix:
        vectors: Matrix = self._forward(batch, self._weights, pooling).cpu().numpy()
        return vectors

    @property
    def _dimension(self) -> int:
        return self._weights.word_embeddings.size(1)


def _join_pieces(pieces: Sequence[tuple[Encoding, Matrix]]) -> TokenVectors:
    """The vectors of a text from the rows of its pieces, without the special tokens."""
    indexes = [np.flatnonzero(np.array(piece.special_tokens_mask) == 0) for piece, _ in pieces]
    rows = np.concatenate([rows[selected] for selected, (_, rows) in zip(indexes, pieces, strict=True)])
    spans = [piece.offsets[index] for selected, (piece, _) in zip(indexes, pieces, strict=True) for index in selected]
    return TokenVectors(rows, tuple(spans))
