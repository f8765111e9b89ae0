"""SPLADE encoders of the BERT architecture (Formal et al., SPLADE v2, 2021). They start in a fraction of
sentence-transformers' time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rag_core.models.encoders.bert_layers import (
    BATCH_TOKENS,
    TermHead,
    Weights,
    apply_linear,
    normalize_layer,
    read_splade_weights,
)
from rag_core.models.encoders.bert_runs import encode_tokens, join_batch
from rag_core.models.encoders.model_files import read_window
from rag_core.models.encoders.precision import choose_dtype
from rag_core.models.encoders.splade import is_storable, merge_weights
from rag_core.models.encoders.token_batches import Schedule, split_into_batches
from rag_core.models.encoders.tokens import load_tokenizer
from rag_core.types import Matrix, TermWeights

SCHEDULE = Schedule(BATCH_TOKENS, 256)


class BertSpladeEncoder:
    """An encoder that gives each term the highest of its weights at all positions in the text.

    So a document that is longer than the model's window can be encoded in pieces, whose highest weights count.
    """

    def __init__(
        self,
        folder: Path,
        precision: Literal["auto", "bf16", "fp32"] = "auto",
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        """Loads the model. Raises ModelError if it is not of this architecture.

        Each of the `threads` encodes a batch. Torch is limited to one thread in the whole process, as by `BertEncoder`.
        """
        torch.set_num_threads(1)
        self._weights, self._head = read_splade_weights(folder, choose_dtype(precision, device), device)
        self._tokenizer = load_tokenizer(folder)
        self._tokenizer.enable_truncation(read_window(folder))
        numbers = range(len(self._weights.word_embeddings))
        self._terms = [self._tokenizer.id_to_token(number) or "" for number in numbers]
        self._is_storable = np.array([is_storable(term) for term in self._terms])
        self._threads, self._pool = threads, ThreadPoolExecutor(threads)

    def weigh(self, texts: Sequence[str]) -> list[TermWeights]:
        encodings = self._tokenizer.encode_batch_fast(list(texts))
        pieces = [[piece.ids for piece in (encoding, *encoding.overflowing)] for encoding in encodings]
        remaining = iter(self._weigh_tokens(list(chain.from_iterable(pieces))))
        return [merge_weights([next(remaining) for _ in parts]) for parts in pieces]

    def weigh_questions(self, texts: Sequence[str]) -> list[TermWeights]:
        """Weighs each text; a text that is longer than the window is cut off."""
        return self._weigh_tokens([encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))])

    def _weigh_tokens(self, tokens: Sequence[Sequence[int]]) -> list[TermWeights]:
        batches = list(split_into_batches([len(ids) for ids in tokens], SCHEDULE, self._threads))
        parts = [[tokens[index] for index in batch] for batch in batches]
        # a single batch stays in this thread: another would only delay a question
        weighed = self._pool.map(self._weigh_batch, parts) if len(parts) > 1 else map(self._weigh_batch, parts)
        weights = dict(zip(chain.from_iterable(batches), chain.from_iterable(weighed), strict=True))
        return [weights[index] for index in range(len(tokens))]

    @torch.inference_mode()
    def _weigh_batch(self, batch: Sequence[Sequence[int]]) -> list[TermWeights]:
        ids, runs = join_batch(batch, self._weights)
        rows: Matrix = _compile_forward()(ids, runs, self._weights, self._head).cpu().numpy()
        return [self._name_terms(row) for row in rows]

    def _name_terms(self, row: Matrix) -> TermWeights:
        numbers = np.flatnonzero((row > 0) & self._is_storable)
        return TermWeights(tuple(self._terms[number] for number in numbers), row[numbers])


@cache
def _compile_forward() -> Callable[..., Tensor]:
    """`forward`, compiled to run without the interpreter's lock, like `bert_runs.forward`."""
    compiled: Callable[..., Tensor] = torch.jit.script(forward)
    return compiled


def forward(ids: Tensor, runs: list[tuple[int, int]], weights: Weights, head: TermHead) -> Tensor:
    """The weights of all terms, in fp32, with a row per text. Texts are scored one by one, which takes less memory."""
    hidden = F.gelu(apply_linear(encode_tokens(ids, runs, weights), head.transform))
    hidden = normalize_layer(hidden, head.norm, weights.epsilon)
    rows: list[Tensor] = []
    start = 0
    for texts, tokens in runs:
        for _ in range(texts):
            rows.append(score_terms(hidden[start : start + tokens], head))
            start += tokens
    return torch.log1p(torch.relu(torch.stack(rows).float()))


def score_terms(hidden: Tensor, head: TermHead) -> Tensor:
    """The highest score of each term at the tokens of a text."""
    return torch.cat([apply_linear(hidden, block).amax(dim=0) for block in head.vocabulary])
