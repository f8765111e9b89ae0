"""BERT's forward pass (Devlin et al. 2019) for sentence encoders: starts in a third of sentence-transformers' time.

Texts of equal length are encoded together, so nothing is padded and nothing masked.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from rag_core.errors import ModelError
from rag_core.ingestion.embedding.model_files import modules, pooling, read_json, window
from rag_core.ingestion.embedding.precision import dtype
from rag_core.ingestion.embedding.tokens import load_tokenizer
from rag_core.types import Matrix

_BATCH_TOKENS = 2048


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
        self._bert = _Bert(config, _weights(folder, dtype(precision, device), device))
        self._pooling, self._dimension = pooling(folder)[0], int(config["hidden_size"])
        self._document_prompt, self._query_prompt = document_prompt, query_prompt
        self._pool = ThreadPoolExecutor(threads)

    def embed(self, texts: Sequence[str]) -> Matrix:
        return self._encoded([self._document_prompt + text for text in texts])

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        return self._encoded([self._query_prompt + text for text in texts])

    def _encoded(self, texts: list[str]) -> Matrix:
        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]
        rows = np.empty((len(texts), self._dimension), np.float32)
        batches = _batches([len(ids) for ids in tokens])
        encoded = self._pool.map(self._pooled, ([tokens[row] for row in batch] for batch in batches))
        for batch, vectors in zip(batches, encoded, strict=True):
            rows[batch] = vectors
        return rows

    @torch.inference_mode()
    def _pooled(self, batch: list[list[int]]) -> Matrix:
        hidden = self._bert.forward(torch.tensor(batch, device=self._device)).float()
        pooled = F.normalize(hidden[:, 0] if self._pooling == "cls" else hidden.mean(dim=1), dim=-1)
        vectors: Matrix = pooled.cpu().numpy()
        return vectors


def _batches(lengths: Sequence[int]) -> list[list[int]]:
    """Indexes of texts of equal length, at most _BATCH_TOKENS tokens together. The longest come first, so that
    threads end together."""
    batches: list[list[int]] = []
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    for length, rows in groupby(order, key=lengths.__getitem__):
        same, size = list(rows), max(1, _BATCH_TOKENS // length)
        batches += [same[start : start + size] for start in range(0, len(same), size)]
    return batches


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


class _Affine(NamedTuple):
    weight: Tensor
    bias: Tensor


class _Linear:
    """`F.linear` with its weights already in the order in which oneDNN reads them, where that is at hand.

    `F.linear` reorders them at every call: a third of the time of a short question, a twelfth of that of a full batch.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._bias = bias
        self._packed = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _BATCH_TOKENS) if self._packed else weight

    def __call__(self, hidden: Tensor) -> Tensor:
        if not self._packed:
            return F.linear(hidden, self._weight, self._bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(hidden, self._weight, self._bias, "none", [], "")
        return product


class _Layer(NamedTuple):
    queries_keys_values: _Linear
    attended: _Linear
    attended_norm: _Affine
    wide: _Linear
    narrow: _Linear
    narrow_norm: _Affine


class _Bert:
    def __init__(self, config: dict[str, Any], weights: dict[str, Tensor]) -> None:
        self._heads, self._epsilon = int(config["num_attention_heads"]), float(config["layer_norm_eps"])
        self._words = weights["embeddings.word_embeddings.weight"]
        # every text is of the first type, so its row is part of each position's
        types = weights["embeddings.token_type_embeddings.weight"]
        self._positions = weights["embeddings.position_embeddings.weight"] + types[0]
        self._norm = _affine(weights, "embeddings.LayerNorm")
        self._layers = [_layer(weights, f"encoder.layer.{i}") for i in range(config["num_hidden_layers"])]

    def forward(self, ids: Tensor) -> Tensor:
        """Shape (texts, tokens) to (texts, tokens, hidden)."""
        hidden = self._normed(F.embedding(ids, self._words) + self._positions[: ids.shape[1]], self._norm)
        for layer in self._layers:
            attended = layer.attended(self._attended(hidden, layer))
            hidden = self._normed(hidden + attended, layer.attended_norm)
            narrow = layer.narrow(F.gelu(layer.wide(hidden)))
            hidden = self._normed(hidden + narrow, layer.narrow_norm)
        return hidden

    def _attended(self, hidden: Tensor, layer: _Layer) -> Tensor:
        texts, tokens, width = hidden.shape
        joined = layer.queries_keys_values(hidden).view(texts, tokens, 3, self._heads, -1)
        queries, keys, values = joined.permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(queries, keys, values).transpose(1, 2).reshape(texts, tokens, width)

    def _normed(self, hidden: Tensor, norm: _Affine) -> Tensor:
        return F.layer_norm(hidden, hidden.shape[-1:], norm.weight, norm.bias, self._epsilon)


def _layer(weights: dict[str, Tensor], name: str) -> _Layer:
    parts = [_affine(weights, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
    return _Layer(
        queries_keys_values=_Linear(torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts])),
        attended=_Linear(*_affine(weights, f"{name}.attention.output.dense")),
        attended_norm=_affine(weights, f"{name}.attention.output.LayerNorm"),
        wide=_Linear(*_affine(weights, f"{name}.intermediate.dense")),
        narrow=_Linear(*_affine(weights, f"{name}.output.dense")),
        narrow_norm=_affine(weights, f"{name}.output.LayerNorm"),
    )


def _affine(weights: dict[str, Tensor], name: str) -> _Affine:
    return _Affine(weights[f"{name}.weight"], weights[f"{name}.bias"])
