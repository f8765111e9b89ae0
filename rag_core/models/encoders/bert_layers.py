"""The weights of BERT (Devlin et al. 2019) and RoBERTa, and the computations that both forward passes share."""

import re
from collections.abc import Mapping, Sequence
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
_BLOCK_TERMS = 1024
_SUPPORTED_SETTINGS = {
    "model_type": ("bert", "roberta", "xlm-roberta"),
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute",),
}
_NAME_PREFIX = re.compile(r"^(model\.)?(bert\.|roberta\.)?")
"""The prefix of weights' names in a model that contains the encoder as a part."""
_TENSORFLOW_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""Names that BERT's first weights in TensorFlow had. Models that were trained from these still have them."""


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


class TermHead(NamedTuple):
    """The head of a masked language model: it scores each term of the vocabulary at each token.

    `vocabulary` holds blocks of terms, because the scores of a block fit the CPU's cache. It saves a third of the time.
    """

    transform: Affine
    norm: Affine
    vocabulary: list[Affine]


def read_weights(folder: Path, precision: torch.dtype, device: str) -> Weights:
    """Reads the weights of a sentence encoder. Raises ModelError if the model is not of this architecture."""
    config = _read_config(folder, "embedding")
    _check_sentence_encoder(folder)
    return _build_weights(config, _load_tensors(folder, "embedding", precision, device))


def read_splade_weights(folder: Path, precision: torch.dtype, device: str) -> tuple[Weights, TermHead]:
    """Reads the weights of a SPLADE model. Raises ModelError if the model is not of this architecture."""
    config = _read_config(folder, "splade")
    _check_splade_modules(folder)
    tensors = _load_tensors(folder, "splade", precision, device)
    if "cls.predictions.bias" not in tensors:
        raise _architecture_error(folder, "splade", "it has no head of a masked language model")
    return _build_weights(config, tensors), _build_term_head(tensors)


def _build_weights(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Weights:
    positions = tensors["embeddings.position_embeddings.weight"][first_position(config) :]
    return Weights(
        word_embeddings=tensors["embeddings.word_embeddings.weight"],
        position_embeddings=positions + tensors["embeddings.token_type_embeddings.weight"][0],
        embedding_norm=_affine(tensors, "embeddings.LayerNorm"),
        layers=[_build_layer(tensors, f"encoder.layer.{i}") for i in range(config["num_hidden_layers"])],
        heads=int(config["num_attention_heads"]),
        epsilon=float(config["layer_norm_eps"]),
    )


def _read_config(folder: Path, section: str) -> dict[str, Any]:
    """Reads the configuration. Raises ModelError if it is not supported. `section` is the settings' section."""
    config: dict[str, Any] = read_json(folder / "config.json")
    for key, values in _SUPPORTED_SETTINGS.items():
        if config.get(key, values[0]) not in values:
            raise _architecture_error(folder, section, f"{key} must be {' or '.join(values)}, got {config[key]}")
    return config


def _check_sentence_encoder(folder: Path) -> None:
    if (modes := read_pooling(folder)) not in (("mean",), ("cls",)):
        raise _architecture_error(folder, "embedding", f"pooling must be mean or cls, got {' + '.join(modes)}")
    _check_modules(folder, "embedding", ("Transformer", "Pooling", "Normalize"))


def _check_splade_modules(folder: Path) -> None:
    _check_modules(folder, "splade", ("Transformer", "MLMTransformer", "SpladePooling"))
    for config in [read_json(path / "config.json") for kind, path in read_modules(folder) if kind == "SpladePooling"]:
        pooling = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
        if pooling != ("max", "relu"):
            raise _architecture_error(folder, "splade", f"pooling must be max of relu, got {' of '.join(pooling)}")


def _check_modules(folder: Path, section: str, supported: Sequence[str]) -> None:
    if others := {kind for kind, _ in read_modules(folder)}.difference(supported):
        reason = f"modules must be {', '.join(supported)}, got also {', '.join(sorted(others))}"
        raise _architecture_error(folder, section, reason)


def _architecture_error(folder: Path, section: str, reason: str) -> ModelError:
    return ModelError(
        f"{folder.name} is not a model for {section}.type bert ({reason}): use type sentence_transformers"
    )


def _load_tensors(folder: Path, section: str, precision: torch.dtype, device: str) -> dict[str, Tensor]:
    """Loads the tensors, by their names in the encoder."""
    load_pickle = partial(torch.load, map_location="cpu", weights_only=True)
    for name, load in (("model.safetensors", load_file), ("pytorch_model.bin", load_pickle)):
        if not (path := folder / name).exists():
            continue
        try:
            tensors: dict[str, Tensor] = load(path)
        except (OSError, RuntimeError, EOFError, UnpicklingError, SafetensorError) as error:
            raise ModelError(f"{path} contains no readable weights: {str(error).partition(chr(10))[0]}") from error
        return {_encoder_name(key): tensor.to(device, precision) for key, tensor in tensors.items()}
    raise _architecture_error(folder, section, "it has neither model.safetensors nor pytorch_model.bin")


def _encoder_name(name: str) -> str:
    name = _NAME_PREFIX.sub("", name)
    for old, new in _TENSORFLOW_NAMES.items():
        name = name.replace(old, new)
    return name


def _build_layer(tensors: Mapping[str, Tensor], name: str) -> Layer:
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


def _build_term_head(tensors: Mapping[str, Tensor]) -> TermHead:
    weight = tensors.get("cls.predictions.decoder.weight", tensors["embeddings.word_embeddings.weight"])
    bias = tensors["cls.predictions.bias"]
    blocks = zip(torch.split(weight, _BLOCK_TERMS), torch.split(bias, _BLOCK_TERMS), strict=True)
    return TermHead(
        transform=_reorder_weight(_affine(tensors, "cls.predictions.transform.dense")),
        norm=_affine(tensors, "cls.predictions.transform.LayerNorm"),
        vocabulary=[_reorder_weight(Affine(weight, bias)) for weight, bias in blocks],
    )


def _affine(tensors: Mapping[str, Tensor], name: str) -> Affine:
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
