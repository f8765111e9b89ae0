"""The builder of the understander, and of retrievers that use one."""

from collections.abc import Mapping
from typing import assert_never

from rag_core.config import NoTopicShift, ScoredTopicShift, Sensitivity, Settings, WindowTopicShift
from rag_core.protocols import Rarities, Retriever, Understander
from rag_core.retrieval.query.rules import RuleUnderstander, VariantWeights
from rag_core.retrieval.query.topic_shift import ShiftAwareUnderstander, TopicShiftDetector, WindowDriftDetector
from rag_core.retrieval.query.understood import ConversationRetriever
from rag_core.retrieval.variants import with_variants
from rag_core.storage.corpus import CorpusReader
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.question_embedder import build_question_embedder

SHIFT_THRESHOLDS: Mapping[Sensitivity, float] = {"low": 0.15, "medium": 0.25, "high": 0.35}
"""`python -m benchmarks.topic_shift` prints what they detect."""


def build_understander(settings: Settings, rarities: Rarities, remote: RemoteModels) -> Understander:
    """Loads the encoder that detects changes of the subject unless it is remote."""
    conversation = settings.conversation
    understander = RuleUnderstander(VariantWeights(**conversation.weights.model_dump()))
    match conversation.topic_shift:
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
            assert_never(conversation.topic_shift)


def build_conversation_retriever(
    settings: Settings, corpus: CorpusReader, retriever: Retriever, remote: RemoteModels
) -> Retriever:
    """A retriever that reads the history of a query, and searches the variants of its question."""
    return ConversationRetriever(build_understander(settings, corpus, remote), with_variants(retriever, corpus))
