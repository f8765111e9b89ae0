"""The project's embedder compared with the library's loop, `SentenceTransformer.encode` with its defaults.

Both encode the same texts with the same model, precision and device. On a CPU both use one thread. With a GPU both
tokenize on all CPUs. Compare the ratio of one run, not the texts/s of two runs.

    python -m benchmarks.embed --texts corpus.jsonl
    python -m benchmarks.embed --texts corpus.jsonl --device cuda
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.corpus import passages, read_texts
from benchmarks.machine import describe_gpu, heading
from jobs.machine import CPUS
from rag_core.config import BertEmbedder, EmbeddingSettings, SentenceTransformersEmbedder
from rag_core.models.encoders.model_files import find_model_folder
from rag_core.models.encoders.precision import choose_dtype
from rag_core.types import Matrix
from rag_core.wiring.embedding import build_encoder

Encode = Callable[[Sequence[str]], Matrix]
WARM_UP = 64


def main() -> None:
    arguments = _arguments()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda requires a GPU: this machine has none")
    threads = _threads(arguments.device)
    print(heading(describe_gpu(arguments.device)))
    print(f"{arguments.model}, {choose_dtype('auto', arguments.device)}, {threads} threads")
    texts = read_texts([arguments.texts])[: arguments.count] if arguments.texts else passages(arguments.count)
    embed, library = build_encoder(_settings(arguments), threads).embed, _library(arguments.model, arguments.device)
    seconds = _time_interleaved([embed, library], texts, arguments.rounds)
    for name, median in zip((f"embedding.type {arguments.type}", "sentence-transformers encode"), seconds, strict=True):
        print(f"{name:34} {len(texts) / median:10.1f} texts/s   {seconds[1] / median:5.2f} x the library")
    print(f"minimum cosine of the two embedders: {_min_cosine(embed(texts[:WARM_UP]), library(texts[:WARM_UP])):.4f}")
    if not torch.cuda.is_available():
        print("not measured on a GPU: this machine has none")


def _threads(device: str) -> int:
    """The number of threads. Sets it for the library, too.

    If the project's code loads a tokenizer first, the library would otherwise tokenize with one thread.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = str(device == "cuda").lower()
    return CPUS if device == "cuda" else 1


def _settings(arguments: argparse.Namespace) -> EmbeddingSettings:
    if arguments.type == "bert":
        return BertEmbedder(type="bert", model=arguments.model, device=arguments.device)
    return SentenceTransformersEmbedder(
        type="sentence_transformers", model=arguments.model, device=arguments.device, batch_size=arguments.batch_size
    )


def _library(name: str, device: str) -> Encode:
    from sentence_transformers import SentenceTransformer

    weights = {"dtype": choose_dtype("auto", device)}
    model: Any = SentenceTransformer(str(find_model_folder(name)), device=device, model_kwargs=weights)
    return lambda texts: np.asarray(model.encode(list(texts), show_progress_bar=False), np.float32)


def _time_interleaved(encoders: Sequence[Encode], texts: Sequence[str], rounds: int) -> list[float]:
    """Median seconds of each encoder. The encoders take turns, because a machine's speed drifts."""
    for encode in encoders:
        encode(texts[:WARM_UP])
    times = [[_seconds(encode, texts) for encode in encoders] for _ in range(rounds)]
    return [statistics.median(encoder_times) for encoder_times in zip(*times, strict=True)]


def _seconds(encode: Encode, texts: Sequence[str]) -> float:
    began = time.perf_counter()
    encode(texts)
    return time.perf_counter() - began


def _min_cosine(one: Matrix, other: Matrix) -> float:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(axis=1) / lengths).min())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--type", choices=("bert", "sentence_transformers"), default="bert")
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument(
        "--batch-size", type=int, default=8, help="for --type sentence_transformers; the library's default is 32"
    )
    parser.add_argument("--texts", type=Path, help='a file with {"text": ...} per line; default: generated')
    parser.add_argument("--count", type=int, default=512, help="number of texts")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
