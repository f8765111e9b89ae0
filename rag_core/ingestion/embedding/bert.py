"""BERT's forward pass (Devlin et al. 2019) for sentence encoders: starts in a third of sentence-transformers' time.

The texts of a batch stand one behind another, the equally long ones together, and attend among these: so nothing is
padded and nothing masked, and products are of full batches, whatever the lengths.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, groupby
from math import ceil
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Encoding
from torch import Tensor
from torch.nn import functional as F

from rag_core.errors import ModelError
from rag_core.ingestion.embedding.model_files import modules, pooling, read_json, window
from rag_core.ingestion.embedding.precision import dtype
from rag_core.ingestion.embedding.tokens import load_tokenizer
from rag_core.types import Matrix

A = TypeVar("A")
B = TypeVar("B")
Forward: TypeAlias = Callable[[Tensor, list[tuple[int, int]]], Tensor]

_BATCH_TOKENS, _FEWEST_TOKENS = 2048, 256
ONEDNN = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


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

        So many `threads` encode a batch each. Torch's own threads, which share a batch, take a third longer: the whole
        process is set to one.
        """
        torch.set_num_threads(1)
        config = _config(folder)
        self._tokenizer = load_tokenizer(folder)
        self._tokenizer.enable_truncation(window(folder))
        self._device = device
        self._bert = _Bert(config, _weights(folder, dtype(precision, device), device), pooling(folder)[0])
        self._dimension = int(config["hidden_size"])
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
        for batch in _batches([len(ids) for ids in tokens]):
            vectors = self._forward(self._bert.tokens, [tokens[row] for row in batch])
            ends = np.cumsum([len(tokens[row]) for row in batch])[:-1]
            for row, own in zip(batch, np.split(vectors, ends), strict=True):
                rows[row] = own
        return rows

    def _encoded(self, texts: list[str]) -> Matrix:
        size = max(1, ceil(len(texts) / self._threads))
        parts = [texts[first : first + size] for first in range(0, len(texts), size)]
        tokens = list(chain.from_iterable(self._each(self._tokenized, parts)))
        rows = np.empty((len(texts), self._dimension), np.float32)
        batches = list(_batches([len(ids) for ids in tokens], self._threads))
        encoded = self._each(
            partial(self._forward, self._bert.pooled), [[tokens[row] for row in batch] for batch in batches]
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
    def _forward(self, forward: Forward, batch: list[list[int]]) -> Matrix:
        runs = [(len(list(same)), tokens) for tokens, same in groupby(map(len, batch))]
        ids = torch.tensor(list(chain.from_iterable(batch)), device=self._device)
        vectors: Matrix = forward(ids, runs).cpu().numpy()
        return vectors


def _joined(pieces: Sequence[tuple[Encoding, Matrix]]) -> TokenVectors:
    own = [np.flatnonzero(np.array(piece.special_tokens_mask) == 0) for piece, _ in pieces]
    rows = np.concatenate([rows[places] for places, (_, rows) in zip(own, pieces, strict=True)])
    spans = [piece.offsets[place] for places, (piece, _) in zip(own, pieces, strict=True) for place in places]
    return TokenVectors(rows, tuple(spans))


def _batches(lengths: Sequence[int], threads: int = 1) -> Iterator[list[int]]:
    """Indexes of texts of _BATCH_TOKENS tokens together, or hardly more.

    The longest texts come first, and the last batches of several threads are ever smaller, so that these end together.
    (Polychronopoulos and Kuck, Guided self-scheduling, IEEE Transactions on Computers 1987.)
    """
    batch: list[int] = []
    tokens, left = 0, sum(lengths)
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        batch.append(index)
        tokens += lengths[index]
        if tokens >= _BATCH_TOKENS or (threads > 1 and tokens >= max(left // (2 * threads), _FEWEST_TOKENS)):
            yield batch
            left -= tokens
            batch, tokens = [], 0
    if batch:
        yield batch


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = read_json(folder / "config.json")
    needed = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
    for key, value in needed.items():
        if config.get(key, value) != value:
            raise _refused(folder, f"{key} must be {value}, got {config[key]}")
    if (modes := pooling(folder)) not in (("mean",), ("cls",)):
        raise _refused(folder, f"pooling must be mean or cls, got {' + '.join(modes)}")
    if more := {kind for kind, _ in modules(folder)} - {"Transformer", "Pooling", "Normalize"}:
        raise _refused(folder, f"modules must be Transformer, Pooling, Normalize, got also {', '.join(sorted(more))}")
    return config


def _refused(folder: Path, reason: str) -> ModelError:
    return ModelError(f"{folder.name} is no model for embedding.type bert ({reason}): use type sentence_transformers")


def _weights(folder: Path, precision: torch.dtype, device: str) -> dict[str, Tensor]:
    path = folder / "model.safetensors"
    if not path.exists():
        raise _refused(folder, "it has no model.safetensors")
    weights = load_file(path)
    return {name.removeprefix("model.").removeprefix("bert."): w.to(device, precision) for name, w in weights.items()}


class Affine(NamedTuple):
    weight: Tensor
    bias: Tensor


class Layer(NamedTuple):
    queries_keys_values: Affine
    attended: Affine
    attended_norm: Affine
    wide: Affine
    narrow: Affine
    narrow_norm: Affine


class _Bert:
    def __init__(self, config: dict[str, Any], weights: dict[str, Tensor], pooling: str) -> None:
        self._heads, self._epsilon = int(config["num_attention_heads"]), float(config["layer_norm_eps"])
        self._pooling = pooling
        self._words = weights["embeddings.word_embeddings.weight"]
        # every text is of the first type, so its row is part of each position's
        types = weights["embeddings.token_type_embeddings.weight"]
        self._positions = weights["embeddings.position_embeddings.weight"] + types[0]
        self._norm = _affine(weights, "embeddings.LayerNorm")
        self._layers = [_layer(weights, f"encoder.layer.{i}") for i in range(config["num_hidden_layers"])]
        self._forward = _scripted()

    def pooled(self, ids: Tensor, runs: list[tuple[int, int]]) -> Tensor:
        """Shape (tokens,) to (texts, hidden): rows of length 1, in fp32. A run in `ids` is so many texts of so many
        tokens each."""
        return self._vectors(ids, runs, self._pooling)

    def tokens(self, ids: Tensor, runs: list[tuple[int, int]]) -> Tensor:
        """Shape (tokens,) to (tokens, hidden), else the same."""
        return self._vectors(ids, runs, "none")

    def _vectors(self, ids: Tensor, runs: list[tuple[int, int]], pooling: str) -> Tensor:
        vectors: Tensor = self._forward(
            ids, runs, self._words, self._positions, self._norm, self._layers, self._heads, self._epsilon, pooling
        )
        return vectors


def _layer(weights: dict[str, Tensor], name: str) -> Layer:
    parts = [_affine(weights, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
    joined = Affine(torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts]))
    return Layer(
        queries_keys_values=_packed(joined),
        attended=_packed(_affine(weights, f"{name}.attention.output.dense")),
        attended_norm=_affine(weights, f"{name}.attention.output.LayerNorm"),
        wide=_packed(_affine(weights, f"{name}.intermediate.dense")),
        narrow=_packed(_affine(weights, f"{name}.output.dense")),
        narrow_norm=_affine(weights, f"{name}.output.LayerNorm"),
    )


def _affine(weights: dict[str, Tensor], name: str) -> Affine:
    return Affine(weights[f"{name}.weight"], weights[f"{name}.bias"])


def _packed(affine: Affine) -> Affine:
    """With its weights in the order in which oneDNN reads them, on a CPU that has it.

    `F.linear` puts them so at every call: a third of the time of a short question, a twelfth of that of a full batch.
    """
    if ONEDNN and affine.weight.device.type == "cpu":
        return affine._replace(weight=torch.ops.mkldnn._reorder_linear_weight(affine.weight, _BATCH_TOKENS))
    return affine


@cache
def _scripted() -> Callable[..., Tensor]:
    """`forward` without the interpreter's lock: from layer to layer it would wait for every thread that runs Python.

    `torch.jit.script` is deprecated for `torch.compile`, which compiles for half a minute and holds the lock.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        compiled: Callable[..., Tensor] = torch.jit.script(forward)
    return compiled


def linear(hidden: Tensor, affine: Affine) -> Tensor:
    return F.linear(hidden, affine.weight, affine.bias)


def packed_linear(hidden: Tensor, affine: Affine) -> Tensor:
    if affine.weight.is_mkldnn:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(hidden, affine.weight, affine.bias, "none", [], "")
        return product
    return F.linear(hidden, affine.weight, affine.bias)


product = packed_linear if ONEDNN else linear


def attended(hidden: Tensor, layer: Layer, runs: list[tuple[int, int]], heads: int) -> Tensor:
    joined, start = product(hidden, layer.queries_keys_values), 0
    parts: list[Tensor] = []
    for texts, tokens in runs:
        own = joined[start : start + texts * tokens].view(texts, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
        part = F.scaled_dot_product_attention(own[0], own[1], own[2])
        parts.append(part.transpose(1, 2).reshape(texts * tokens, -1))
        start += texts * tokens
    return torch.cat(parts)


def normed(hidden: Tensor, norm: Affine, epsilon: float) -> Tensor:
    return F.layer_norm(hidden, [hidden.size(1)], norm.weight, norm.bias, epsilon)


def placed(positions: Tensor, runs: list[tuple[int, int]]) -> Tensor:
    return torch.cat([positions[:tokens].repeat(texts, 1) for texts, tokens in runs])


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


def forward(
    ids: Tensor,
    runs: list[tuple[int, int]],
    words: Tensor,
    positions: Tensor,
    norm: Affine,
    layers: list[Layer],
    heads: int,
    epsilon: float,
    pooling: str,
) -> Tensor:
    hidden = normed(F.embedding(ids, words) + placed(positions, runs), norm, epsilon)
    for layer in layers:
        seen = product(attended(hidden, layer, runs, heads), layer.attended)
        hidden = normed(hidden + seen, layer.attended_norm, epsilon)
        narrow = product(F.gelu(product(hidden, layer.wide)), layer.narrow)
        hidden = normed(hidden + narrow, layer.narrow_norm, epsilon)
    return F.normalize(pooled(hidden.float(), runs, pooling), dim=-1)
