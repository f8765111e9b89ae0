"""The deployment of the reranker or judge under full batches, compared with the library's plain loop in one process.

A random model scores pairs of about 128 tokens; a reranker's has MiniLM's size by default. The loop is
`CrossEncoder.predict` of sentence-transformers over all pairs, in this process. The deployment has the same number of
CPUs, or the same GPU. Its callers send 50 pairs each, like a gateway. The two take turns, and the ratio is that of the
medians.

    python -m benchmarks.reranker
    python -m benchmarks.reranker --callers 16 --calls 20 --device cuda --shape bge-reranker-v2-m3
    python -m benchmarks.reranker --callers 16 --calls 20 --device cuda --shape mdeberta-nli
"""

import argparse
import asyncio
import os
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import psutil

from benchmarks.machine import describe_gpu, heading
from benchmarks.random_models import SHAPES, write_random_model
from benchmarks.scratch import exit_when_terminated, scratch_folder
from rag_core.breaker import Breaker
from rag_core.config import (
    Bm25Retriever,
    CrossEncoderJudge,
    CrossEncoderReranker,
    OpenAIGenerator,
    RerankedRetriever,
    Settings,
)
from rag_core.models.encoders.precision import choose_dtype
from rag_core.protocols import Pair
from rag_core.settings import load_settings
from serve.models.remote import RemotePairs

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

Role: TypeAlias = Literal["reranker", "judge"]

PAIRS_PER_CALL = 50
QUESTION_TOKENS, TEXT_TOKENS = 12, (50, 180)
TARGET = 0.9


def main() -> None:
    arguments = _arguments()
    print(heading(describe_gpu(arguments.device)))
    with scratch_folder() as folder:
        write_random_model(arguments.shape, folder)
        _measure(folder, arguments)


def _measure(folder: Path, arguments: argparse.Namespace) -> None:
    role: Role = "judge" if len(SHAPES[arguments.shape].labels) > 1 else "reranker"
    settings = _settings(folder, arguments)
    calls = _calls(folder, arguments.callers * arguments.calls)
    model = _load_library_model(folder, arguments)
    remote = RemotePairs(_deploy(settings, role, arguments.device), Breaker(f"the {role}"), role)

    def score_in_loop() -> Sequence[float]:
        pairs = [pair for call in calls for pair in call]
        scores = model.predict(pairs, apply_softmax=role == "judge", show_progress_bar=False)
        return [float(score) for score in (scores[:, 0] if role == "judge" else scores)]

    def score_remotely() -> Sequence[float]:
        return asyncio.run(_score_calls(remote, calls, arguments.callers))

    difference = np.abs(np.array(score_in_loop()) - np.array(score_remotely())).max()  # this also warms both up
    rates = {"plain loop": (score_in_loop, []), "deployment": (score_remotely, [])}
    for _ in range(arguments.rounds):
        for work, results in rates.values():
            results.append(_measure_rate(work, len(calls) * PAIRS_PER_CALL))
    _show({name: results for name, (_, results) in rates.items()}, difference)


async def _score_calls(remote: RemotePairs, calls: Sequence[Sequence[Pair]], callers: int) -> list[float]:
    async def caller(first: int) -> list[list[float]]:
        return [await remote.score(call) for call in calls[first::callers]]

    caller_scores = await asyncio.gather(*map(caller, range(callers)))
    scores = [caller_scores[number % callers][number // callers] for number in range(len(calls))]
    return [score for call in scores for score in call]


def _measure_rate(work: Callable[[], Sequence[float]], pairs: int) -> tuple[float, float]:
    """Pairs per second, and CPU milliseconds per pair of this process and its descendants."""
    busy, began = _cpu_seconds(), time.perf_counter()
    work()
    return pairs / (time.perf_counter() - began), 1000 * (_cpu_seconds() - busy) / pairs


def _cpu_seconds() -> float:
    main, seconds = psutil.Process(), 0.0
    for process in [main, *main.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            seconds += times.user + times.system
    return seconds


def _show(rates: dict[str, list[tuple[float, float]]], difference: float) -> None:
    print(f"{'':12} {'pairs/s':>9} {'CPU ms/pair':>12}   pairs/s of each round")
    medians = {name: [median(column) for column in zip(*results, strict=True)] for name, results in rates.items()}
    for name, results in rates.items():
        rate, cpu = medians[name]
        print(f"{name:12} {rate:9.1f} {cpu:12.1f}   {' '.join(f'{rate:.1f}' for rate, _ in results)}")
    wall = medians["deployment"][0] / medians["plain loop"][0]
    cpu = medians["plain loop"][1] / medians["deployment"][1]
    print(f"ratio {wall:.2f} (target {TARGET}), by CPU time {cpu:.2f}; maximum difference of scores {difference:.1e}")


def _settings(folder: Path, arguments: argparse.Namespace) -> Settings:
    """Settings with the model as the reranker and as the judge, of which only one is deployed."""
    model = {
        "type": "cross_encoder",
        "model": str(folder),
        "precision": arguments.precision,
        "device": arguments.device,
        "batch_size": arguments.batch_size,
    }
    reranker = CrossEncoderReranker.model_validate(model)
    settings = load_settings(environment={})
    guard = settings.guard.model_copy(update={"judge": CrossEncoderJudge.model_validate(model)})
    parts = {
        "retrieval": RerankedRetriever(type="reranked", retriever=Bm25Retriever(type="bm25"), reranker=reranker),
        "generation": OpenAIGenerator(type="openai", model="none"),  # extractive answers would need no judge
        "guard": guard,
    }
    return settings.model_copy(update=parts)


def _load_library_model(folder: Path, arguments: argparse.Namespace) -> "CrossEncoder":
    from sentence_transformers import CrossEncoder

    weights = choose_dtype(arguments.precision, arguments.device)
    return CrossEncoder(str(folder), device=arguments.device, model_kwargs={"dtype": weights}, local_files_only=True)


def _deploy(settings: Settings, role: Role, device: str) -> Any:
    """Deploys the model with all CPUs, or with one CPU and the GPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray itself causes these warnings
        from ray import serve

        from jobs.ray_connection import start_ray
        from serve.models.deployments import Scorer

        start_ray()
        exit_when_terminated()
        serve.start(proxy_location="Disabled")
        share = {"num_cpus": os.cpu_count()} if device == "cpu" else {"num_cpus": 1, "num_gpus": 1}
        scorer = Scorer.options(name=role.capitalize(), ray_actor_options=share)  # type: ignore[attr-defined]
        app = scorer.bind(settings.model_dump_json(), role)
        return serve.run(app, name=role, route_prefix=None)


def _calls(folder: Path, count: int) -> list[list[Pair]]:
    """Calls of one question and `PAIRS_PER_CALL` texts each. A word of the vocabulary is one token."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    words = np.array([word for word in sorted(tokenizer.get_vocab()) if word.isascii() and word.isalpha()])
    random = np.random.default_rng(7)

    def text(tokens: int) -> str:
        return " ".join(random.choice(words, tokens))

    calls = []
    for _ in range(count):
        question = text(QUESTION_TOKENS)
        calls.append([(question, text(random.integers(*TEXT_TOKENS))) for _ in range(PAIRS_PER_CALL)])
    return calls


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--calls", type=int, default=1, help="calls per caller and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16, help="batch size of the profile's reranker, in pairs")
    parser.add_argument("--precision", choices=["auto", "bf16", "fp32"], default="auto")
    parser.add_argument("--device", default="cpu")
    models = [name for name, shape in SHAPES.items() if shape.labels]
    parser.add_argument("--shape", choices=models, default="minilm-reranker", help="the shape of the random model")
    return parser.parse_args()


if __name__ == "__main__":
    main()
