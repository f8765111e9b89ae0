"""BERT's forward pass on a CPU: texts stand one behind another, the equally long ones together, and attend among these.

So nothing is padded and nothing masked, and products are of full batches, whatever the lengths.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain, groupby

import torch
from torch import Tensor
from torch.nn import functional as F

from rag_core.models.encoders.bert_layers import Layer, Weights, normed, passed, product


def run_by_run(batch: Sequence[Sequence[int]], weights: Weights, pooling: str) -> Tensor:
    """Rows of length 1, in fp32: one of each text, or, of pooling `none`, of each token. A batch is of token ids, in
    the order of the texts' lengths."""
    runs = [(len(list(same)), tokens) for tokens, same in groupby(map(len, batch))]
    ids = torch.tensor(list(chain.from_iterable(batch)), device=weights.words.device)
    return _scripted()(ids, runs, weights, pooling)


@cache
def _scripted() -> Callable[..., Tensor]:
    """`forward` without the interpreter's lock: from layer to layer it would wait for every thread that runs Python.

    `torch.jit.script` is deprecated for `torch.compile`, which compiles for half a minute and holds the lock.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        compiled: Callable[..., Tensor] = torch.jit.script(forward)
    return compiled


def forward(ids: Tensor, runs: list[tuple[int, int]], weights: Weights, pooling: str) -> Tensor:
    """A run is so many texts of so many tokens each."""
    places = placed(weights.positions, runs)
    hidden = normed(F.embedding(ids, weights.words) + places, weights.norm, weights.epsilon)
    for layer in weights.layers:
        hidden = passed(hidden, attended(hidden, layer, runs, weights.heads), layer, weights.epsilon)
    return F.normalize(pooled(hidden.float(), runs, pooling), dim=-1)


def placed(positions: Tensor, runs: list[tuple[int, int]]) -> Tensor:
    return torch.cat([positions[:tokens].repeat(texts, 1) for texts, tokens in runs])


def attended(hidden: Tensor, layer: Layer, runs: list[tuple[int, int]], heads: int) -> Tensor:
    joined, start = product(hidden, layer.queries_keys_values), 0
    parts: list[Tensor] = []
    for texts, tokens in runs:
        own = joined[start : start + texts * tokens].view(texts, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
        part = F.scaled_dot_product_attention(own[0], own[1], own[2])
        parts.append(part.transpose(1, 2).reshape(texts * tokens, -1))
        start += texts * tokens
    return torch.cat(parts)


def pooled(hidden: Tensor, runs: list[tuple[int, int]], pooling: str) -> Tensor:
    if pooling == "none":
        return hidden
    parts: list[Tensor] = []
    start = 0
    for texts, tokens in runs:
        own = hidden[start : start + texts * tokens].view(texts, tokens, -1)
        parts.append(own[:, 0] if pooling == "cls" else own.mean(dim=1))
        start += texts * tokens
    return torch.cat(parts)
