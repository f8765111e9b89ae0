"""The builder of the understander, and of retrievers that use one."""

from typing import assert_never

from rag_core.config import LlmUnderstanding, RuleUnderstanding, Settings
from rag_core.protocols import Retriever, Understander
from rag_core.retrieval.query.intent import Intents, load_intents
from rag_core.retrieval.query.rewrite import LlmUnderstander, load_rewrite_prompt
from rag_core.retrieval.query.rules import RuleUnderstander, VariantWeights
from rag_core.retrieval.query.understood import ConversationRetriever
from rag_core.retrieval.variants import with_variants
from rag_core.storage.corpus import CorpusReader
from rag_core.wiring.models import RemoteModels, select_chat


def build_understander(settings: Settings, remote: RemoteModels) -> Understander:
    """Raises ConfigError if a prompt or an intent cannot be read."""
    conversation = settings.conversation
    rules = RuleUnderstander(VariantWeights(**conversation.weights.model_dump()), build_intents(settings))
    match conversation.understanding:
        case RuleUnderstanding():
            return rules
        case LlmUnderstanding() as section:
            return LlmUnderstander(
                client=select_chat(section, settings, remote, "understander"),
                rules=rules,
                timeout=section.timeout_ms / 1000,
                system=load_rewrite_prompt(section.prompt),
            )
        case _:
            assert_never(conversation.understanding)


def build_intents(settings: Settings) -> Intents:
    return load_intents(settings.conversation.intents)


def build_conversation_retriever(
    settings: Settings, corpus: CorpusReader, retriever: Retriever, remote: RemoteModels
) -> ConversationRetriever:
    """A retriever that reads the history of a query, and searches the variants of its question."""
    return ConversationRetriever(build_understander(settings, remote), with_variants(retriever, corpus))
