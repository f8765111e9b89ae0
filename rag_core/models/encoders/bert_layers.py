"""The weights of BERT (Devlin et al. 2019) and RoBERTa, and the computations that both forward passes share."""

import re
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from rag_core.errors import ModelError
from rag_core.models.encoders.model_files import first_position, read_json, read_modules, read_pooling

ONEDNN = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
BATCH_TOKENS = 2048
"""The length of the batches that the memory layout of the weights is optimized for."""
_SUPPORTED_SETTINGS = {
    "model_type": ("bert", "roberta", "xlm-roberta"),
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute",),
}
_NAME_PREFIX = re.compile(r"^(model\.)?(bert\.|roberta\.)?")
"""The prefix of weights' names in a model that contains the encoder as a part."""


class Affine(NamedTuple):
    weight: Tensor
    bias: Tensor


class Layer(NamedTuple):
    queries_keys_values: Affine
    attention_output: Affine
    attention_norm: Affine
    intermediate: Affine
    output: Affine
    output_norm: Affine


class Weights(NamedTuple):
    """The weights of an encoder.

    `position_embeddings` include the embedding of the first token type, because all tokens have that type.
    """

    word_embeddings: Tensor
    position_embeddings: Tensor
    embedding_norm: Affine
    layers: list[Layer]
    heads: int
    epsilon: float


def read_weights(folder: Path, precision: torch.dtype, device: str) -> Weights:
    """Reads the weights. Raises ModelError if the model is not of this architecture."""
    config = _read_config(folder)
    tensors = {name: weight.to(device, precision) for name, weight in _load_tensors(folder).items()}
    positions = tensors["embeddings.position_embeddings.weight"][first_position(config) :]
    return Weights(
        word_embeddings=tensors["embeddings.word_embeddings.weight"],
        position_embeddings=positions + tensors["embeddings.token_type_embeddings.weight"][0],
        embedding_norm=_affine(tensors, "embeddings.LayerNorm"),
        layers=[_build_layer(tensors, f"encoder.layer.{i}") for i in range(config["num_hidden_layers"])],
        heads=int(config["num_attention_heads"]),
        epsilon=float(config["layer_norm_eps"]),
    )


def _read_config(folder: Path) -> dict[str, Any]:
    """Reads the configuration. Raises ModelError if it is not supported."""
    config: dict[str, Any] = read_json(folder / "config.json")
    for key, values in _SUPPORTED_SETTINGS.items():
        if config.get(key, values[0]) not in values:
            raise _architecture_error(folder, f"{key} must be {' or '.join(values)}, got {config[key]}")
    if (modes := read_pooling(folder)) not in (("mean",), ("cls",)):
        raise _architecture_error(folder, f"pooling must be mean or cls, got {' + '.join(modes)}")
    if others := {kind for kind, _ in read_modules(folder)} - {"Transformer", "Pooling", "Normalize"}:
        others_text = ", ".join(sorted(others))
        raise _architecture_error(folder, f"modules must be Transformer, Pooling, Normalize, got also {others_text}")
    return config


def _architecture_error(folder: Path, reason: str) -> ModelError:
    return ModelError(
        f"{folder.name} is not a model for embedding.type bert ({reason}): use type sentence_transformers"
    )


def _load_tensors(folder: Path) -> dict[str, Tensor]:
    """Loads the tensors, by their names in the encoder."""
    load_pickle = partial(torch.load, map_location="cpu", weights_only=True)
    for name, load in (("model.safetensors", load_file), ("pytorch_model.bin", load_pickle)):
        if not (path := folder / name).exists():
            continue
        try:
            tensors: dict[str, Tensor] = load(path)
        except (OSError, RuntimeError, EOFError, UnpicklingError, SafetensorError) as error:
            raise ModelError(f"{path} contains no readable weights: {str(error).partition(chr(10))[0]}") from error
        return {_NAME_PREFIX.sub("", key): tensor for key, tensor in tensors.items()}
    raise _architecture_error(folder, "it has neither model.safetensors nor pytorch_model.bin")


def _build_layer(tensors: dict[str, Tensor], name: str) -> Layer:
    parts = [_affine(tensors, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
    joined = Affine(torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))
    return Layer(
        queries_keys_values=_reorder_weight(joined),
        attention_output=_reorder_weight(_affine(tensors, f"{name}.attention.output.dense")),
        attention_norm=_affine(tensors, f"{name}.attention.output.LayerNorm"),
        intermediate=_reorder_weight(_affine(tensors, f"{name}.intermediate.dense")),
        output=_reorder_weight(_affine(tensors, f"{name}.output.dense")),
        output_norm=_affine(tensors, f"{name}.output.LayerNorm"),
    )


def _affine(tensors: dict[str, Tensor], name: str) -> Affine:
    return Affine(tensors[f"{name}.weight"], tensors[f"{name}.bias"])


def _reorder_weight(affine: Affine) -> Affine:
    """Puts the weight into oneDNN's memory layout, on a CPU where oneDNN multiplies it.

    Otherwise `F.linear` does so at every call. That takes a third of the time of a short question, and a twelfth of the
    time of a full batch.
    """
    if ONEDNN and affine.weight.device.type == "cpu" and _onednn_multiplies(affine.weight.dtype):
        return affine._replace(weight=torch.ops.mkldnn._reorder_linear_weight(affine.weight, BATCH_TOKENS))
    return affine


def _onednn_multiplies(dtype: torch.dtype) -> bool:
    """True unless it is bf16 on a CPU without AVX-512 and AVX-NE-CONVERT.

    These multiply bf16, but often slowly: `has_fast_bf16` is true where it is fast.
    """
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def apply_plain_linear(hidden: Tensor, affine: Affine) -> Tensor:
    return F.linear(hidden, affine.weight, affine.bias)


def apply_reordered_linear(hidden: Tensor, affine: Affine) -> Tensor:
    if affine.weight.is_mkldnn:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(hidden, affine.weight, affine.bias, "none", [], "")
        return product
    return apply_plain_linear(hidden, affine)


apply_linear = apply_reordered_linear if ONEDNN else apply_plain_linear


def normalize_layer(hidden: Tensor, norm: Affine, epsilon: float) -> Tensor:
    return F.layer_norm(hidden, [hidden.size(1)], norm.weight, norm.bias, epsilon)


def apply_layer(hidden: Tensor, attended: Tensor, layer: Layer, epsilon: float) -> Tensor:
    """The output of a layer for its input `hidden` and the result `attended` of its attention."""
    hidden = normalize_layer(hidden + apply_linear(attended, layer.attention_output), layer.attention_norm, epsilon)
    return normalize_layer(
        hidden + apply_linear(F.gelu(apply_linear(hidden, layer.intermediate)), layer.output),
        layer.output_norm,
        epsilon,
    )
