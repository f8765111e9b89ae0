"""What `rag doctor` finds out about models: those of this process are loaded, those behind an endpoint are asked."""

import asyncio
import time
from collections.abc import Iterator
from functools import partial

from rag_cli.doctor_checks import Finding, attempt
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

WORD = 16
"""Tokens of an answer: some models think before they write, and refuse a limit that leaves no room for it."""


def models(settings: Settings) -> Iterator[Finding]:
    """Of each part of the profile that has one."""
    from rag_core.wiring.models import rerankers

    yield _gpu()
    yield attempt("model", partial(_embedder, settings.embedding))
    if splade := settings.splade:
        yield attempt("splade model", partial(_splade, splade))
    for reranker in rerankers(settings.retrieval):
        yield from _scoring("reranker", reranker)
    if isinstance(settings.generation, ExtractiveGenerator):
        return  # it only quotes, which nothing judges
    if isinstance(settings.generation, Endpoint):
        yield attempt("generator", partial(_answering, "generator", settings.generation))
    yield from _scoring("judge", settings.guard.judge)


def _gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("gpu", "note", f"PyTorch {torch.__version__} finds none: models of this machine run on its CPUs")
    found = [torch.cuda.get_device_properties(each) for each in range(torch.cuda.device_count())]
    return Finding("gpu", "ok", ", ".join(f"{each.name} with {each.total_memory / 1e9:.0f} GB" for each in found))


def _embedder(embedding: EmbeddingSettings) -> Finding:
    from rag_core.wiring.embedding import embedding_space, refuse_missing_device

    refuse_missing_device(embedding)
    space = embedding_space(embedding)
    return Finding("model", "ok", f"{space.model}: {space.dimension} dimensions, reads {space.window} tokens")


def _splade(settings: SpladeSettings) -> Finding:
    from rag_core.wiring.splade import fingerprint

    return Finding("splade model", "ok", f"fingerprint {fingerprint(settings)}")


def _scoring(name: str, chosen: RerankerSettings | JudgeSettings) -> Iterator[Finding]:
    """Nothing of those that have no model."""
    match chosen:
        case Endpoint():
            yield attempt(name, partial(_answering, name, chosen))
        case CrossEncoderReranker() | LateInteractionReranker():
            yield attempt(name, partial(_reranker, chosen))
        case CrossEncoderJudge():
            yield attempt(name, partial(_judge, chosen))
        case _:
            return


def _reranker(chosen: CrossEncoderReranker | LateInteractionReranker) -> Finding:
    from rag_core.wiring.reranking import load

    load(chosen)
    return Finding("reranker", "ok", f"{chosen.model} on {chosen.device}")


def _judge(chosen: CrossEncoderJudge) -> Finding:
    from rag_core.wiring.judging import judge_pairs

    judge_pairs(chosen).load()
    return Finding("judge", "ok", f"{chosen.model} on {chosen.device}")


def _answering(name: str, endpoint: Endpoint) -> Finding:
    """It is asked for a few tokens: that tells more than that something listens."""
    from rag_core.wiring.endpoint import client

    began = time.perf_counter()
    asyncio.run(client(endpoint).complete([{"role": "user", "content": "Say yes."}], max_tokens=WORD))
    took = time.perf_counter() - began
    return Finding(name, "ok", f"{endpoint.model} at {endpoint.base_url} answers in {took:.1f} s")
