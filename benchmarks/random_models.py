"""Models with random weights in the shapes of real ones: their speed is the same, and they need no model hub.

Each has the tokenizer of all-MiniLM-L6-v2, so a text has other tokens than with the real model.

    python -m benchmarks.random_models bge-m3 FOLDER
    python -m benchmarks.embed --model FOLDER --device cuda
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_core.models.encoders.model_files import find_model_folder

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
XLM_ROBERTA_LARGE: Mapping[str, Any] = {
    "model_type": "xlm-roberta",
    "vocab_size": 250_002,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "max_position_embeddings": 8194,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}
MDEBERTA_BASE: Mapping[str, Any] = {
    "model_type": "deberta-v2",
    "vocab_size": 251_000,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_buckets": 256,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}
MINILM: Mapping[str, Any] = {
    "model_type": "bert",
    "vocab_size": 30_522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
}
TINY: Mapping[str, Any] = {**MINILM, "hidden_size": 48, "num_hidden_layers": 2, "intermediate_size": 96}


@dataclass(frozen=True)
class Shape:
    """The configuration of a model. A model with `labels` is a classifier of pairs, one without is a text encoder."""

    config: Mapping[str, Any]
    window: int
    labels: tuple[str, ...] = field(default=())


SHAPES: Mapping[str, Shape] = {
    "tiny": Shape(TINY, 512),
    "tiny-reranker": Shape(TINY, 512, ("relevance",)),
    "tiny-nli": Shape(TINY, 512, ("entailment", "neutral", "contradiction")),
    "minilm-reranker": Shape(MINILM, 512, ("relevance",)),
    "bge-m3": Shape(XLM_ROBERTA_LARGE, 8192),
    "bge-reranker-v2-m3": Shape(XLM_ROBERTA_LARGE, 8192, ("relevance",)),
    "mdeberta-nli": Shape(MDEBERTA_BASE, 512, ("entailment", "neutral", "contradiction")),
}


def write_random_model(name: str, folder: Path) -> None:
    """Writes the model as transformers and sentence-transformers read it."""
    import torch
    import transformers

    torch.manual_seed(7)
    shape = SHAPES[name]
    kind = transformers.AutoModelForSequenceClassification if shape.labels else transformers.AutoModel
    settings = dict(shape.config)
    labels = {"id2label": dict(enumerate(shape.labels))} if shape.labels else {}
    config = transformers.AutoConfig.for_model(settings.pop("model_type"), **settings, **labels)
    kind.from_config(config).save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(find_model_folder("all-MiniLM-L6-v2"))
    tokenizer.model_max_length = shape.window
    tokenizer.save_pretrained(folder)
    _remove_token_types(folder / "tokenizer_config.json")
    if not shape.labels:
        _write_modules(folder, config.hidden_size)


def _remove_token_types(config: Path) -> None:
    """Makes the tokenizer return no token types: XLM-RoBERTa has one type, and BERT's tokenizer numbers two."""
    settings = json.loads(config.read_text())
    config.write_text(json.dumps({**settings, "model_input_names": ["input_ids", "attention_mask"]}))


def _write_modules(folder: Path, dimension: int) -> None:
    """Makes the encoder one that pools by the first token, like bge-m3."""
    (folder / "modules.json").write_text(json.dumps(MODULES))
    for name in ("1_Pooling", "2_Normalize"):
        (folder / name).mkdir()
    pooling = {"word_embedding_dimension": dimension, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("folder", type=Path, help="a new folder, or an empty one")
    arguments = parser.parse_args()
    write_random_model(arguments.shape, arguments.folder)


if __name__ == "__main__":
    main()
