"""The builder of the pipeline from a question to a reply."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rag_core.answering.generation.packing import Packing
from rag_core.answering.generation.packing import pack as pack_hits
from rag_core.answering.generation.prompt import PromptPack, load_prompt_pack
from rag_core.answering.judging.guard import Guard
from rag_core.answering.pipeline import AnswerLimits, QueryPipeline
from rag_core.answering.repetition import RepetitionCheck
from rag_core.config import ExtractiveGenerator, Settings, find_reranked_retriever
from rag_core.conversation.clarification import SpreadClarifier
from rag_core.protocols import Conversations, Retriever
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Hit, Passage, Style
from rag_core.wiring.budget import search_limits
from rag_core.wiring.embedding import is_calibrated
from rag_core.wiring.generation import build_generator, build_small_talk, build_token_counter
from rag_core.wiring.judging import build_judge
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.understanding import build_understander


def build_pipeline(
    settings: Settings,
    corpus: CorpusReader,
    retriever: Retriever,
    conversations: Conversations,
    remote: RemoteModels,
    patient: bool = False,
) -> QueryPipeline:
    """Loads the models of generator and judge that are not remote. `patient`: a budget that is not set does not apply.

    The retriever must search the variants of a query, as those of `with_variants` do.

    Raises ConfigError if a model is remote that cannot be.
    """
    guard, answering = settings.guard, settings.answering
    pack = load_prompt_pack(settings.prompt.pack)
    return QueryPipeline(
        retriever=retriever,
        pack=build_packer(settings),
        generator=build_generator(settings, corpus, remote),
        guard=Guard(
            judge=build_judge(settings, remote),
            mode=guard.mode,
            stream=guard.stream,
            on_judge_error=guard.on_judge_error,
            timeout=guard.timeout_ms / 1000,
            confident=answering.confident,
            notice=pack.passages,
        ),
        understander=build_understander(settings, corpus, remote),
        conversations=conversations,
        style=Style(pack=settings.prompt.pack, citations=settings.prompt.citations),
        hosts=frozenset(guard.link_hosts),
        disabled=_list_disabled_stages(settings),
        limits=AnswerLimits(
            timeout=answering.timeout_ms / 1000,
            stage_timeouts=search_limits(settings, patient),
            depth=answering.depth,
            history_messages=answering.history,
            history_tokens=answering.history_tokens,
        ),
        lengths=build_token_counter(settings).lengths,
        knows_cosines=is_calibrated(settings.embedding),
        small_talk=build_small_talk(settings, remote),
        clarifier=_build_clarifier(settings, pack),
        repetition=_build_repetition_check(settings, pack),
    )


def _build_clarifier(settings: Settings, pack: PromptPack) -> SpreadClarifier | None:
    section = settings.conversation.clarification
    return SpreadClarifier(question=pack.clarification, options=section.options) if section.enabled else None


def _build_repetition_check(settings: Settings, pack: PromptPack) -> RepetitionCheck | None:
    section = settings.conversation.repetition
    if not section.enabled:
        return None
    return RepetitionCheck(
        repeated=pack.repeated,
        nothing_new=pack.nothing_new,
        # A quoted sentence can answer several questions. In 30 repeated answers of MT-RAG-UN, its F1 with the reference
        # is .24, and that of the sentences that remain without it is .07.
        regenerate=not isinstance(settings.generation, ExtractiveGenerator),
        overlap=section.overlap,
        turns=section.turns,
    )


def _list_disabled_stages(settings: Settings) -> dict[str, str]:
    """The reasons why stages of the retrieval are left out, by stage."""
    has_reranker = find_reranked_retriever(settings.retrieval) is not None
    return ({} if has_reranker else {"rerank": "the profile has no reranker"}) | settings.skipped.questions


def build_packer(settings: Settings) -> Callable[[Sequence[Hit]], tuple[Passage, ...]]:
    """A function that packs hits within the generator's token limit. Raises ModelError if the tokenizer is missing."""
    packing = Packing(**settings.packing.model_dump(), now=datetime.now(UTC))
    lengths = build_token_counter(settings).lengths
    return lambda hits: pack_hits(hits, replace(packing, now=datetime.now(UTC)), lengths)
