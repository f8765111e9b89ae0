"""Retrieval by BM25."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from rag_core.config import Bm25Retriever
from rag_core.errors import DocumentError
from rag_core.knowledge_base import KnowledgeBase
from rag_core.settings import load_settings
from rag_core.types import Document
from rag_core.wire.filter_dicts import combine_filters
from rag_core.wire.result_dicts import describe_result, hit_from_result

_FIELDS = frozenset(("title", "language"))


@dataclass(frozen=True)
class SparseRetriever:
    """BM25 over a collection of the knowledge base, with the profile and the settings of the environment."""

    collection: str = "hyperkb"
    k1: Annotated[float, Field(ge=0)] = 1.5
    b: Annotated[float, Field(ge=0, le=1)] = 0.75

    def index_documents(self, documents: Iterable[Mapping[str, Any]]) -> int:
        """Stores documents with `id`, `content` and `metadata`, and returns their number.

        A document replaces the stored one with its id. Raises DocumentError for the first document that fails; all
        others are stored.
        """
        given = [_read_document(document) for document in documents]
        with KnowledgeBase(load_settings()) as knowledge:
            report = knowledge.add(given, self.collection)
        for failure in report.failures:
            raise DocumentError(failure["stage"], f"{failure['uri']}: {failure['reason']}")
        return len(given)

    def search(self, query: str, top_k: int = 10, filters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Returns at most `top_k` chunks, best first.

        `filters` holds values by metadata key, or follows our own grammar. Raises NotFoundError if nothing was indexed.
        """
        leg = Bm25Retriever(type="bm25", k1=self.k1, b=self.b)
        with KnowledgeBase(load_settings().model_copy(update={"retrieval": leg})) as knowledge:
            hits = knowledge.search(query, top_k, self.collection, combine_filters(filters))
        return [describe_result(hit, "bm25") for hit in hits]


def _read_document(item: Mapping[str, Any]) -> Document:
    origin = hit_from_result(item).origin
    metadata = {key: value for key, value in origin.metadata.items() if key not in _FIELDS and value is not None}
    return Document(
        uri=str(item["id"]),
        text=str(item["content"]),
        title=origin.title,
        language=origin.language,
        metadata={"source": str(item["id"]), **metadata},
    )
