"""BERT's forward pass on a CPU. Texts are concatenated, and each run of equally long texts attends together.

So nothing is padded or masked, and matrix products have the size of a full batch, for any mix of lengths.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain, groupby

import torch
from torch import Tensor
from torch.nn import functional as F

from rag_core.models.encoders.bert_layers import Layer, Weights, apply_layer, apply_linear, normalize_layer


def forward_runs(batch: Sequence[Sequence[int]], weights: Weights, pooling: str) -> Tensor:
    """Rows of length 1, in fp32: one for each text or, with pooling `none`, for each token.

    A batch holds the token ids of texts, in the order of the texts' lengths.
    """
    ids, runs = join_batch(batch, weights)
    return _compile_forward()(ids, runs, weights, pooling)


def join_batch(batch: Sequence[Sequence[int]], weights: Weights) -> tuple[Tensor, list[tuple[int, int]]]:
    """The concatenated token ids, and the runs. A run is a number of texts, and the number of tokens of each of them.

    `batch` is in the order of the texts' lengths.
    """
    runs = [(len(list(lengths)), tokens) for tokens, lengths in groupby(map(len, batch))]
    return torch.tensor(list(chain.from_iterable(batch)), device=weights.word_embeddings.device), runs


@cache
def _compile_forward() -> Callable[..., Tensor]:
    """`forward`, compiled to run without the interpreter's lock.

    With the lock, it would wait for all threads that run Python, at every layer. `torch.jit.script` is deprecated in
    favour of `torch.compile`, but that compiles for half a minute and holds the lock.
    """
    compiled: Callable[..., Tensor] = torch.jit.script(forward)
    return compiled


def forward(ids: Tensor, runs: list[tuple[int, int]], weights: Weights, pooling: str) -> Tensor:
    """Encodes, pools and normalizes concatenated texts."""
    return F.normalize(pool(encode_tokens(ids, runs, weights).float(), runs, pooling), dim=-1)


def encode_tokens(ids: Tensor, runs: list[tuple[int, int]], weights: Weights) -> Tensor:
    """The output of the last layer, with a row per token."""
    positions = repeat_positions(weights.position_embeddings, runs)
    hidden = F.embedding(ids, weights.word_embeddings) + positions
    hidden = normalize_layer(hidden, weights.embedding_norm, weights.epsilon)
    for layer in weights.layers:
        hidden = apply_layer(hidden, attend(hidden, layer, runs, weights.heads), layer, weights.epsilon)
    return hidden


def repeat_positions(positions: Tensor, runs: list[tuple[int, int]]) -> Tensor:
    """The position embedding of each token."""
    return torch.cat([positions[:tokens].repeat(texts, 1) for texts, tokens in runs])


def attend(hidden: Tensor, layer: Layer, runs: list[tuple[int, int]], heads: int) -> Tensor:
    joined, start = apply_linear(hidden, layer.queries_keys_values), 0
    parts: list[Tensor] = []
    for texts, tokens in runs:
        run = joined[start : start + texts * tokens].view(texts, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
        part = F.scaled_dot_product_attention(run[0], run[1], run[2])
        parts.append(part.transpose(1, 2).reshape(texts * tokens, -1))
        start += texts * tokens
    return torch.cat(parts)


def pool(hidden: Tensor, runs: list[tuple[int, int]], pooling: str) -> Tensor:
    if pooling == "none":
        return hidden
    parts: list[Tensor] = []
    start = 0
    for texts, tokens in runs:
        run = hidden[start : start + texts * tokens].view(texts, tokens, -1)
        parts.append(run[:, 0] if pooling == "cls" else run.mean(dim=1))
        start += texts * tokens
    return torch.cat(parts)
