"""The builder of the understander, and of retrievers that use one."""

from collections.abc import Mapping
from typing import assert_never

from rag_core.config import (
    LlmUnderstanding,
    NoTopicShift,
    RuleUnderstanding,
    ScoredTopicShift,
    Sensitivity,
    Settings,
    WindowTopicShift,
)
from rag_core.protocols import Rarities, Retriever, Understander
from rag_core.retrieval.query.intent import Intents, load_intents
from rag_core.retrieval.query.rewrite import LlmUnderstander, load_rewrite_prompt
from rag_core.retrieval.query.rules import RuleUnderstander, VariantWeights
from rag_core.retrieval.query.topic_shift import ShiftAwareUnderstander, TopicShiftDetector, WindowDriftDetector
from rag_core.retrieval.query.understood import ConversationRetriever
from rag_core.retrieval.variants import with_variants
from rag_core.storage.corpus import CorpusReader
from rag_core.wiring.models import RemoteModels, select_chat
from rag_core.wiring.question_embedder import build_question_embedder

SHIFT_THRESHOLDS: Mapping[Sensitivity, float] = {"low": 0.15, "medium": 0.25, "high": 0.35}
"""`python -m benchmarks.topic_shift` prints what they detect."""


def build_understander(settings: Settings, rarities: Rarities, remote: RemoteModels) -> Understander:
    """Loads the encoder that detects changes of the subject unless it is remote.

    Raises ConfigError if a prompt or an intent cannot be read.
    """
    understander = build_interpreter(settings, remote)
    match settings.conversation.topic_shift:
        case ScoredTopicShift() as section:
            embedder = build_question_embedder(settings.embedding, remote)
            detector = TopicShiftDetector(embedder, rarities, SHIFT_THRESHOLDS[section.sensitivity])
            return ShiftAwareUnderstander(understander, detector, section.history_weight)
        case WindowTopicShift() as section:
            embedder = build_question_embedder(settings.embedding, remote)
            window = WindowDriftDetector(embedder, section.threshold, section.window)
            return ShiftAwareUnderstander(understander, window, section.history_weight)
        case NoTopicShift():
            return understander
        case _:
            assert_never(settings.conversation.topic_shift)


def build_interpreter(settings: Settings, remote: RemoteModels) -> Understander:
    """The understander without the detection of changes of the subject. Raises ConfigError like the others."""
    match settings.conversation.understanding:
        case RuleUnderstanding():
            return build_rules(settings)
        case LlmUnderstanding() as section:
            return LlmUnderstander(
                client=select_chat(section, settings, remote, "understander"),
                rules=build_rules(settings),
                timeout=section.timeout_ms / 1000,
                system=load_rewrite_prompt(section.prompt),
            )
        case _:
            assert_never(settings.conversation.understanding)


def build_rules(settings: Settings) -> RuleUnderstander:
    """The understander without a model."""
    return RuleUnderstander(VariantWeights(**settings.conversation.weights.model_dump()), build_intents(settings))


def build_intents(settings: Settings) -> Intents:
    return load_intents(settings.conversation.intents)


def build_conversation_retriever(
    settings: Settings, corpus: CorpusReader, retriever: Retriever, remote: RemoteModels
) -> ConversationRetriever:
    """A retriever that reads the history of a query, and searches the variants of its question."""
    return ConversationRetriever(build_understander(settings, corpus, remote), with_variants(retriever, corpus))
