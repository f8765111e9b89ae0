"""Weights of BERT (Devlin et al. 2019) and RoBERTa, and what a layer does with tokens that have attended to others."""

import re
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from rag_core.errors import ModelError
from rag_core.models.encoders.model_files import first_position, modules, pooling, read_json

ONEDNN = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
BATCH_TOKENS = 2048
"""The length of a batch that the weights are laid out for."""
_NEEDED = {
    "model_type": ("bert", "roberta", "xlm-roberta"),
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute",),
}
_PART = re.compile(r"^(model\.)?(bert\.|roberta\.)?")
"""What names of weights begin with where the encoder is a part of the model that was stored."""


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


class Weights(NamedTuple):
    """`positions` hold the row of the texts' type, too: every text is of the first one."""

    words: Tensor
    positions: Tensor
    norm: Affine
    layers: list[Layer]
    heads: int
    epsilon: float


def read_weights(folder: Path, precision: torch.dtype, device: str) -> Weights:
    """ModelError if the model is not of this architecture."""
    config = _config(folder)
    named = {name: weight.to(device, precision) for name, weight in _stored(folder).items()}
    positions = named["embeddings.position_embeddings.weight"][first_position(config) :]
    return Weights(
        words=named["embeddings.word_embeddings.weight"],
        positions=positions + named["embeddings.token_type_embeddings.weight"][0],
        norm=_affine(named, "embeddings.LayerNorm"),
        layers=[_layer(named, f"encoder.layer.{i}") for i in range(config["num_hidden_layers"])],
        heads=int(config["num_attention_heads"]),
        epsilon=float(config["layer_norm_eps"]),
    )


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = read_json(folder / "config.json")
    for key, values in _NEEDED.items():
        if config.get(key, values[0]) not in values:
            raise _refused(folder, f"{key} must be {' or '.join(values)}, got {config[key]}")
    if (modes := pooling(folder)) not in (("mean",), ("cls",)):
        raise _refused(folder, f"pooling must be mean or cls, got {' + '.join(modes)}")
    if more := {kind for kind, _ in modules(folder)} - {"Transformer", "Pooling", "Normalize"}:
        raise _refused(folder, f"modules must be Transformer, Pooling, Normalize, got also {', '.join(sorted(more))}")
    return config


def _refused(folder: Path, reason: str) -> ModelError:
    return ModelError(f"{folder.name} is no model for embedding.type bert ({reason}): use type sentence_transformers")


def _stored(folder: Path) -> dict[str, Tensor]:
    """By their names in the encoder."""
    for name, reading in (("model.safetensors", load_file), ("pytorch_model.bin", _unpickled)):
        if (path := folder / name).exists():
            return {_PART.sub("", of): weight for of, weight in _read(path, reading).items()}
    raise _refused(folder, "it has neither model.safetensors nor pytorch_model.bin")


def _read(path: Path, reading: Callable[[Path], dict[str, Tensor]]) -> dict[str, Tensor]:
    try:
        return reading(path)
    except (OSError, RuntimeError, EOFError, UnpicklingError, SafetensorError) as error:
        raise ModelError(f"{path} holds no weights that can be read: {str(error).partition(chr(10))[0]}") from error


def _unpickled(path: Path) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return weights


def _layer(named: dict[str, Tensor], name: str) -> Layer:
    parts = [_affine(named, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
    joined = Affine(torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts]))
    return Layer(
        queries_keys_values=_reordered(joined),
        attended=_reordered(_affine(named, f"{name}.attention.output.dense")),
        attended_norm=_affine(named, f"{name}.attention.output.LayerNorm"),
        wide=_reordered(_affine(named, f"{name}.intermediate.dense")),
        narrow=_reordered(_affine(named, f"{name}.output.dense")),
        narrow_norm=_affine(named, f"{name}.output.LayerNorm"),
    )


def _affine(named: dict[str, Tensor], name: str) -> Affine:
    return Affine(named[f"{name}.weight"], named[f"{name}.bias"])


def _reordered(affine: Affine) -> Affine:
    """With its weights in the order in which oneDNN reads them, on a CPU where it multiplies them.

    `F.linear` puts them so at every call: a third of the time of a short question, a twelfth of that of a full batch.
    """
    if ONEDNN and affine.weight.device.type == "cpu" and _onednn_multiplies(affine.weight.dtype):
        return affine._replace(weight=torch.ops.mkldnn._reorder_linear_weight(affine.weight, BATCH_TOKENS))
    return affine


def _onednn_multiplies(numbers: torch.dtype) -> bool:
    """bf16 only where the CPU has AVX-512 or AVX-NE-CONVERT, be it slowly: `multiplies_bf16` tells where it is fast."""
    return numbers != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def linear(hidden: Tensor, affine: Affine) -> Tensor:
    return F.linear(hidden, affine.weight, affine.bias)


def reordered_linear(hidden: Tensor, affine: Affine) -> Tensor:
    if affine.weight.is_mkldnn:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(hidden, affine.weight, affine.bias, "none", [], "")
        return product
    return linear(hidden, affine)


product = reordered_linear if ONEDNN else linear


def normed(hidden: Tensor, norm: Affine, epsilon: float) -> Tensor:
    return F.layer_norm(hidden, [hidden.size(1)], norm.weight, norm.bias, epsilon)


def passed(hidden: Tensor, attended: Tensor, layer: Layer, epsilon: float) -> Tensor:
    """What a layer makes of its tokens, and of what each has seen in its text."""
    hidden = normed(hidden + product(attended, layer.attended), layer.attended_norm, epsilon)
    return normed(hidden + product(F.gelu(product(hidden, layer.wide)), layer.narrow), layer.narrow_norm, epsilon)
