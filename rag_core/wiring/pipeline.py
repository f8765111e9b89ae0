"""The pipeline from a question to a reply."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rag_core.answering.generation.packing import Packing, pack
from rag_core.answering.judging.hallucination import Guard
from rag_core.answering.pipeline import Limits, QueryPipeline
from rag_core.config import Settings, outer_reranked
from rag_core.protocols import Conversations, Retriever
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Hit, Passage, Style
from rag_core.wiring.budget import stage_limits
from rag_core.wiring.generation import generator, generator_tokenizer
from rag_core.wiring.judging import judge
from rag_core.wiring.models import HERE, Elsewhere


def pipeline(
    settings: Settings,
    corpus: CorpusReader,
    found: Retriever,
    conversations: Conversations,
    elsewhere: Elsewhere = HERE,
) -> QueryPipeline:
    """Loads the models of generator and judge that are to run in this process. ConfigError if one is to run elsewhere
    that cannot."""
    return QueryPipeline(
        retriever=found,
        pack=packing(settings),
        generator=generator(settings, corpus, elsewhere),
        guard=_guard(settings, elsewhere),
        conversations=conversations,
        style=Style(pack=settings.prompt.pack, citations=settings.prompt.citations),
        hosts=frozenset(settings.guard.link_hosts),
        disabled={} if outer_reranked(settings.retrieval) else {"rerank": "the profile has no reranker"},
        limits=_limits(settings),
        lengths=generator_tokenizer(settings).lengths,
    )


def packing(settings: Settings) -> Callable[[Sequence[Hit]], tuple[Passage, ...]]:
    """In the generator's own tokens. ModelError if its tokenizer is not there."""
    chosen = Packing(**settings.packing.model_dump(), now=datetime.now(UTC))
    lengths = generator_tokenizer(settings).lengths
    return lambda hits: pack(hits, replace(chosen, now=datetime.now(UTC)), lengths)


def _guard(settings: Settings, elsewhere: Elsewhere) -> Guard:
    chosen = settings.guard
    return Guard(
        judge=judge(settings, elsewhere),
        mode=chosen.mode,
        stream=chosen.stream,
        on_judge_error=chosen.on_judge_error,
        timeout=chosen.timeout_ms / 1000,
    )


def _limits(settings: Settings) -> Limits:
    chosen = settings.answering
    return Limits(
        timeout=chosen.timeout_ms / 1000,
        stages=stage_limits(chosen.budget, settings.retrieval),
        depth=chosen.depth,
        history=chosen.history,
        history_tokens=chosen.history_tokens,
    )
