"""The builder of the understander, and of retrievers that use one."""

from rag_core.config import Settings
from rag_core.protocols import Retriever, Understander
from rag_core.retrieval.query.rules import RuleUnderstander, VariantWeights
from rag_core.retrieval.query.understood import ConversationRetriever
from rag_core.retrieval.variants import with_variants
from rag_core.storage.corpus import CorpusReader


def build_understander(settings: Settings) -> Understander:
    conversation = settings.conversation
    return RuleUnderstander(VariantWeights(**conversation.weights.model_dump()))


def build_conversation_retriever(
    settings: Settings, corpus: CorpusReader, retriever: Retriever
) -> ConversationRetriever:
    """A retriever that reads the history of a query, and searches the variants of its question."""
    return ConversationRetriever(build_understander(settings), with_variants(retriever, corpus))
