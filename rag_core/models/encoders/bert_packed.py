"""BERT's forward pass on a GPU. Texts are concatenated, and one kernel lets each text attend to its own tokens.

On a GPU, a kernel for each length, as on a CPU, would take longer to start than to run. (Dao, FlashAttention-2, ICLR
2024.)
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn

from rag_core.models.encoders.bert_layers import Weights, apply_layer, apply_linear, normalize_layer


class TextBounds(NamedTuple):
    """The positions of the concatenated texts. `offsets` are their starts, followed by the end of the last text."""

    lengths: Tensor
    offsets: Tensor
    longest: int


def forward_packed(batch: Sequence[Sequence[int]], weights: Weights, pooling: str) -> Tensor:
    """Rows of length 1, in fp32: one for each text or, with pooling `none`, for each token.

    A batch holds the token ids of texts, in any order. The weights must have 16 bits.
    """
    ids = torch.tensor(list(chain.from_iterable(batch)), device=weights.word_embeddings.device)
    lengths = torch.tensor([len(tokens) for tokens in batch], device=ids.device)
    bounds = TextBounds(lengths, F.pad(lengths.cumsum(0), (1, 0)).int(), max(map(len, batch)))
    starts = bounds.offsets[:-1].repeat_interleave(lengths, output_size=len(ids))
    positions = torch.arange(len(ids), device=ids.device) - starts
    hidden = F.embedding(ids, weights.word_embeddings) + F.embedding(positions, weights.position_embeddings)
    hidden = normalize_layer(hidden, weights.embedding_norm, weights.epsilon)
    for layer in weights.layers:
        attended = attend(apply_linear(hidden, layer.queries_keys_values), bounds, weights.heads)
        hidden = apply_layer(hidden, attended, layer, weights.epsilon)
    return F.normalize(pool(hidden.float(), bounds, pooling), dim=-1)


def attend(joined: Tensor, bounds: TextBounds, heads: int) -> Tensor:
    queries, keys, values = joined.view(len(joined), 3, heads, -1).unbind(1)
    offsets, longest = bounds.offsets, bounds.longest
    attended = cast(Tensor, varlen_attn(queries, keys, values, offsets, offsets, longest, longest))
    return attended.reshape(len(joined), -1)


def pool(hidden: Tensor, bounds: TextBounds, pooling: str) -> Tensor:
    match pooling:
        case "none":
            return hidden
        case "cls":
            return hidden[bounds.offsets[:-1]]
        case _:
            return torch.segment_reduce(hidden, "mean", lengths=bounds.lengths, axis=0)
