"""BERT's forward pass on a GPU: texts stand one behind another, and one kernel lets each attend to its own tokens.

A kernel a length, as on a CPU, would take longer to start than to run. (Dao, FlashAttention-2, ICLR 2024.)
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn

from rag_core.models.encoders.bert_layers import Weights, normed, passed, product


class Places(NamedTuple):
    """Where the texts stand: `bounds` are where they begin, and after that where the last one ends."""

    lengths: Tensor
    bounds: Tensor
    longest: int


def packed(batch: Sequence[Sequence[int]], weights: Weights, pooling: str) -> Tensor:
    """Rows of length 1, in fp32: one of each text, or, of pooling `none`, of each token. A batch is of token ids, in
    any order. The weights are of 16 bits."""
    ids = torch.tensor(list(chain.from_iterable(batch)), device=weights.words.device)
    places = _places([len(tokens) for tokens in batch], ids.device)
    hidden = F.embedding(ids, weights.words) + F.embedding(_positions(places, len(ids)), weights.positions)
    hidden = normed(hidden, weights.norm, weights.epsilon)
    for layer in weights.layers:
        seen = _attended(product(hidden, layer.queries_keys_values), places, weights.heads)
        hidden = passed(hidden, seen, layer, weights.epsilon)
    return F.normalize(_pooled(hidden.float(), places, pooling), dim=-1)


def _places(lengths: list[int], device: torch.device) -> Places:
    on_device = torch.tensor(lengths, device=device)
    return Places(on_device, F.pad(on_device.cumsum(0), (1, 0)).int(), max(lengths))


def _positions(places: Places, tokens: int) -> Tensor:
    """Of each token in its text."""
    starts = places.bounds[:-1].repeat_interleave(places.lengths, output_size=tokens)
    return torch.arange(tokens, device=starts.device) - starts


def _attended(joined: Tensor, places: Places, heads: int) -> Tensor:
    queries, keys, values = joined.view(len(joined), 3, heads, -1).unbind(1)
    bounds, longest = places.bounds, places.longest
    seen = cast(Tensor, varlen_attn(queries, keys, values, bounds, bounds, longest, longest))
    return seen.reshape(len(joined), -1)


def _pooled(hidden: Tensor, places: Places, pooling: str) -> Tensor:
    match pooling:
        case "none":
            return hidden
        case "cls":
            return hidden[places.bounds[:-1]]
        case _:
            return torch.segment_reduce(hidden, "mean", lengths=places.lengths, axis=0)
