"""Repeated searches for the failed questions of an evaluation, which show where a relevant document is lost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.question_answers import filter_documents
from rag_core.config import Settings
from rag_core.errors import RagError, describe_error
from rag_core.evaluation.gold_search import GoldSearch, describe_conversation_search, describe_search
from rag_core.evaluation.question import Question
from rag_core.evaluation.stages import TOP_RANKS
from rag_core.knowledge_base import KnowledgeBase
from rag_core.retrieval.why import Facts, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The document to look for, and the words of its answer, if they are known.

    `searched` is the text that is searched. `uris` are the only documents that are searched; all, if there are none.
    `rank` is that among the first hits of a search that used the history, 0 if these lack the document; None if no
    history was used.
    """

    uri: str
    words: str
    searched: str
    uris: Sequence[str] = ()
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldSearchTask:
    """The retriever to trace, its collection, and the targets by question."""

    settings: Settings
    collection: str
    targets: Mapping[str, Target]
    callers: int = 1

    def load(self, knowledge: KnowledgeBase) -> None:
        knowledge.load()

    def run(self, knowledge: KnowledgeBase, question: Question) -> GoldSearch:
        """A search that fails counts as a failure of the legs."""
        target = self.targets[question.id]
        filters = filter_documents(target.uris)

        def trace(text: str) -> Facts:
            return knowledge.why(text, target.uri, TOP_RANKS, self.collection, filters, span=target.words)

        try:
            facts = trace(target.searched)
            is_other_text = target.searched != question.text and not facts.hit.rank
            raw = trace(question.text) if is_other_text else None
        except RagError as error:
            return GoldSearch(question=question.id, loss=Verdict(step="leg", reason=describe_error(error)))
        if target.rank is not None:
            return describe_conversation_search(question.id, facts, target.rank)
        return describe_search(question.id, facts, raw)
