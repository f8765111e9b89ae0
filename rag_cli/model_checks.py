"""The checks of `rag doctor` on models: local ones are loaded, and those at an endpoint are called."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import aclosing
from functools import partial

from rag_cli.doctor_checks import Finding, run_check
from rag_core.config import (
    CrossEncoderJudge,
    CrossEncoderReranker,
    EmbeddingSettings,
    Endpoint,
    ExtractiveGenerator,
    JudgeSettings,
    LateInteractionReranker,
    RerankerSettings,
    Settings,
    SpladeSettings,
)

ANSWER_TOKENS = 16
"""The token limit of an answer. Some models reason before they answer, and reject a limit with no room for it."""


def check_models(settings: Settings) -> Iterator[Finding]:
    """Checks the GPU, and the model of each part of the profile that has one."""
    import torch

    from rag_core.wiring.models import list_rerankers

    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        yield Finding("gpu", "ok", ", ".join(f"{gpu.name} with {gpu.total_memory / 1e9:.0f} GB" for gpu in gpus))
    else:
        yield Finding("gpu", "note", f"PyTorch {torch.__version__} finds no GPU: local models run on the CPUs")
    yield run_check("model", partial(_check_embedder, settings.embedding))
    if splade := settings.splade:
        yield run_check("splade model", partial(_check_splade, splade))
    for reranker in list_rerankers(settings.retrieval):
        yield from _check_scorer("reranker", reranker)
    if isinstance(settings.generation, ExtractiveGenerator):
        return  # it only quotes, so there is nothing to judge
    if isinstance(settings.generation, Endpoint):
        yield run_check("generator", partial(_check_endpoint, "generator", settings.generation))
    yield from _check_scorer("judge", settings.guard.judge)


def _check_embedder(embedding: EmbeddingSettings) -> Finding:
    from rag_core.wiring.embedding import check_device, embedding_space

    check_device(embedding)
    space = embedding_space(embedding)
    return Finding("model", "ok", f"{space.model}: {space.dimension} dimensions, reads {space.window} tokens")


def _check_splade(settings: SpladeSettings) -> Finding:
    from rag_core.wiring.splade import weigher_fingerprint

    return Finding("splade model", "ok", f"fingerprint {weigher_fingerprint(settings)}")


def _check_scorer(name: str, settings: RerankerSettings | JudgeSettings) -> Iterator[Finding]:
    """Yields a finding if the reranker or judge has a model."""
    match settings:
        case Endpoint():
            yield run_check(name, partial(_check_endpoint, name, settings))
        case CrossEncoderReranker() | LateInteractionReranker() | CrossEncoderJudge():
            yield run_check(name, partial(_load_scorer, name, settings))
        case _:
            return


def _load_scorer(name: str, settings: CrossEncoderReranker | LateInteractionReranker | CrossEncoderJudge) -> Finding:
    from rag_core.wiring.judging import judge_model
    from rag_core.wiring.reranking import load_reranker

    if isinstance(settings, CrossEncoderJudge):
        judge_model(settings).load()
    else:
        load_reranker(settings)
    return Finding(name, "ok", f"{settings.model} on {settings.device}")


def _check_endpoint(name: str, endpoint: Endpoint) -> Finding:
    """Requests a few tokens, because an open port alone does not prove that the model works."""
    from rag_core.models.endpoint import HttpPool
    from rag_core.wiring.endpoint import build_client

    messages = [{"role": "user", "content": "Say yes."}]

    async def request_tokens() -> None:
        async with aclosing(HttpPool()) as pool:
            await build_client(endpoint, pool).complete(messages, max_tokens=ANSWER_TOKENS)

    started = time.perf_counter()
    asyncio.run(request_tokens())
    seconds = time.perf_counter() - started
    return Finding(name, "ok", f"{endpoint.model} at {endpoint.base_url} answers in {seconds:.1f} s")
