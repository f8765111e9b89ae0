"""Sentence encoders of BERT's and RoBERTa's architecture: they start in a third of sentence-transformers' time."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from tokenizers import Encoding
from torch import Tensor

from rag_core.models.encoders.bert_layers import BATCH_TOKENS, Weights, read_weights
from rag_core.models.encoders.bert_runs import run_by_run
from rag_core.models.encoders.model_files import pooling, window
from rag_core.models.encoders.precision import dtype, multiplies_bf16
from rag_core.models.encoders.tokens import load_tokenizer
from rag_core.types import Matrix

A = TypeVar("A")
B = TypeVar("B")
Forward: TypeAlias = Callable[[Sequence[Sequence[int]], Weights, str], Tensor]


class Schedule(NamedTuple):
    """Tokens of a batch."""

    most: int
    fewest: int


RUNS, PACKED = Schedule(BATCH_TOKENS, 256), Schedule(32768, 32768)
"""An H100 takes half as long again for batches of 8,192 tokens, and gains little from longer ones."""


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """Of a text's tokens, without the special ones: rows of length 1, and beside them where each token stands."""

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
        """ModelError if the model is not of this architecture.

        So many `threads` encode a batch each; beside a GPU they split texts into tokens. Torch's own threads, which
        share a batch, take a third longer: the whole process is set to one.
        """
        torch.set_num_threads(1)
        numbers = dtype(precision, device)
        self._weights, self._pooling = read_weights(folder, numbers, device), pooling(folder)[0]
        self._tokenizer = load_tokenizer(folder)
        self._tokenizer.enable_truncation(window(folder))
        self._schedule, self._forward = _ways(numbers, device)
        self._document_prompt, self._query_prompt = document_prompt, query_prompt
        self._threads, self._pool = threads, ThreadPoolExecutor(threads)

    def embed(self, texts: Sequence[str]) -> Matrix:
        return self._encoded([self._document_prompt + text for text in texts])

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        return self._encoded([self._query_prompt + text for text in texts])

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        """In the order given. A text that is longer than the window is read in pieces."""
        read = [self._tokenizer.encode(text) for text in texts]
        pieces = [[whole, *whole.overflowing] for whole in read]
        rows = iter(self._each_token([piece.ids for own in pieces for piece in own]))
        return [_joined([(piece, next(rows)) for piece in own]) for own in pieces]

    def _each_token(self, tokens: list[list[int]]) -> list[Matrix]:
        rows: list[Matrix] = [np.empty((0, self._dimension), np.float32)] * len(tokens)
        for batch in _batches([len(ids) for ids in tokens], self._schedule):
            vectors = self._vectors("none", [tokens[row] for row in batch])
            ends = np.cumsum([len(tokens[row]) for row in batch])[:-1]
            for row, own in zip(batch, np.split(vectors, ends), strict=True):
                rows[row] = own
        return rows

    def _encoded(self, texts: list[str]) -> Matrix:
        size = max(1, ceil(len(texts) / self._threads))
        parts = [texts[first : first + size] for first in range(0, len(texts), size)]
        tokens = list(chain.from_iterable(self._each(self._tokenized, parts)))
        rows = np.empty((len(texts), self._dimension), np.float32)
        batches = list(_batches([len(ids) for ids in tokens], self._schedule, self._threads))
        encoded = self._each(
            partial(self._vectors, self._pooling), [[tokens[row] for row in batch] for batch in batches]
        )
        for batch, vectors in zip(batches, encoded, strict=True):
            rows[batch] = vectors
        return rows

    def _tokenized(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]

    def _each(self, work: Callable[[A], B], parts: Sequence[A]) -> Iterator[B]:
        """In this thread what is one part: another one would only delay a question."""
        return self._pool.map(work, parts) if len(parts) > 1 else map(work, parts)

    @torch.inference_mode()
    def _vectors(self, pooling: str, batch: list[list[int]]) -> Matrix:
        vectors: Matrix = self._forward(batch, self._weights, pooling).cpu().numpy()
        return vectors

    @property
    def _dimension(self) -> int:
        return self._weights.words.size(1)


def _ways(numbers: torch.dtype, device: str) -> tuple[Schedule, Forward]:
    """How long batches are, and what they pass through."""
    if device.startswith("cuda") and numbers == torch.bfloat16 and multiplies_bf16(device):
        from rag_core.models.encoders.bert_packed import packed

        return PACKED, packed
    return RUNS, run_by_run


def _joined(pieces: Sequence[tuple[Encoding, Matrix]]) -> TokenVectors:
    own = [np.flatnonzero(np.array(piece.special_tokens_mask) == 0) for piece, _ in pieces]
    rows = np.concatenate([rows[places] for places, (_, rows) in zip(own, pieces, strict=True)])
    spans = [piece.offsets[place] for places, (piece, _) in zip(own, pieces, strict=True) for place in places]
    return TokenVectors(rows, tuple(spans))


def _batches(lengths: Sequence[int], schedule: Schedule, threads: int = 1) -> Iterator[list[int]]:
    """Indexes of texts of `schedule.most` tokens together, or hardly more.

    The longest texts come first, and the last batches of several threads are ever smaller, so that these end together.
    (Polychronopoulos and Kuck, Guided self-scheduling, IEEE Transactions on Computers 1987.)
    """
    batch: list[int] = []
    tokens, left = 0, sum(lengths)
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        batch.append(index)
        tokens += lengths[index]
        if tokens >= schedule.most or (threads > 1 and tokens >= max(left // (2 * threads), schedule.fewest)):
            yield batch
            left -= tokens
            batch, tokens = [], 0
    if batch:
        yield batch
