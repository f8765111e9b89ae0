"""The search of a collection by one leg, which two nodes share."""

from collections.abc import Mapping
from typing import Any

from anyio import to_thread
from pydantic import Field

from rag_core.config import LegSettings
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.knowledge_base import KnowledgeBase
from rag_core.settings import load_settings
from rag_core.wire.result_dicts import describe_result


class CollectionSearchConfig(NodeConfig):
    """`vector_store` names a collection. Results with a score below `score_threshold` are left out."""

    vector_store: str = Field(min_length=1)
    top_k: int = Field(10, ge=1)
    score_threshold: float = 0.0
    filter_metadata: dict[str, Any] = Field({})
    include_metadata: bool = True


async def search_collection(
    leg: LegSettings, retriever: str, collection: str, query: str, top_k: int, filters: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """The results, best first, under the retriever's name. Raises NotFoundError if there is no such collection."""

    def search() -> list[dict[str, Any]]:
        settings = load_settings().model_copy(update={"retrieval": leg})
        with KnowledgeBase(settings) as knowledge:
            hits = knowledge.search(query, top_k, collection, filters)
        return [describe_result(hit, retriever) for hit in hits]

    return await to_thread.run_sync(search)


def select_results(
    results: list[dict[str, Any]], score_threshold: float, include_metadata: bool = True
) -> list[dict[str, Any]]:
    """The results with at least this score, on request without their metadata."""
    selected = [result for result in results if result["score"] >= score_threshold]
    return selected if include_metadata else [{**result, "metadata": {}} for result in selected]
