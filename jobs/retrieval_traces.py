"""The trace of a question through a retriever, for evaluation."""

import time
from dataclasses import dataclass
from functools import partial
from typing import Self

from rag_core.config import Settings
from rag_core.errors import RagError, describe_error
from rag_core.evaluation.conversation_mode import ConversationMode, list_gold_variants
from rag_core.evaluation.question import Question
from rag_core.evaluation.stages import Trace
from rag_core.knowledge_base import KnowledgeBase
from rag_core.storage.postgres import Postgres
from rag_core.types import Hit, StageReport


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceTask:
    """The retriever to trace, its collection, and the number `k` of hits.

    Each process answers `callers` questions concurrently. `mode` says how a question with a history is searched.
    """

    settings: Settings
    collection: str
    k: int
    callers: int = 1
    mode: ConversationMode = ConversationMode.fused

    @classmethod
    def build(
        cls,
        settings: Settings,
        postgres: Postgres,
        collection: str,
        k: int,
        callers: int,
        mode: ConversationMode = ConversationMode.fused,
    ) -> Self:
        open_settings = use_open_store(settings, postgres)
        return cls(settings=open_settings, collection=collection, k=k, callers=callers, mode=mode)

    def load(self, knowledge: KnowledgeBase) -> None:
        knowledge.load()

    def run(self, knowledge: KnowledgeBase, question: Question) -> Trace:
        started = time.perf_counter()
        try:
            hits, stages = self._search(knowledge, question)
        except RagError as error:
            return Trace(question=question.id, seconds=time.perf_counter() - started, error=describe_error(error))
        seconds = time.perf_counter() - started
        ranking = tuple(hit.chunk.id for hit in hits)
        return Trace(question=question.id, ranking=ranking, stages=tuple(stages), seconds=seconds)

    def _search(self, knowledge: KnowledgeBase, question: Question) -> tuple[list[Hit], list[StageReport]]:
        search = partial(knowledge.explain, k=self.k, collection=self.collection)
        match self.mode:
            case ConversationMode.raw:
                return search(question.text)
            case ConversationMode.rewritten:
                return search(knowledge.rewrite(question.text, question.history, self.collection))
            case ConversationMode.fused:
                return search(question.text, history=question.history)
            case ConversationMode.gold:
                return search(question.text, variants=list_gold_variants(question))


def use_open_store(settings: Settings, postgres: Postgres) -> Settings:
    """The settings with the address of the store that is open: that of an embedded store differs from its setting."""
    store = settings.store.model_copy(update={"url": postgres.dsn})
    return settings.model_copy(update={"store": store})
