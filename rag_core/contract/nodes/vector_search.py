"""The node that searches by the meaning of a question."""

from collections.abc import Mapping
from typing import Any, Literal

from anyio import to_thread

from rag_core.config import DenseRetriever
from rag_core.contract.nodes.collection_search import CollectionSearchConfig, search_collection, select_results
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.contract.pre_retrieval import get_query_embedding
from rag_core.contract.vector_store.port import BaseVectorStore, SearchResult
from rag_core.wire.filter_dicts import combine_filters

RETRIEVER = "vector"


class VectorSearchConfig(CollectionSearchConfig):
    """`vector_store` names a collection. Results with a score below `score_threshold` are left out."""

    node_type: Literal["vector_search"] = "vector_search"


class VectorSearchNode:
    """Inputs: `query`, and `filters` besides those of the configuration. Outputs: `results`, whose score is the cosine.

    `store` is searched instead of the collection. Its vectors must have the text as `content` in their metadata, as
    EmbeddingIndexerNode stores it.
    """

    def __init__(self, config: VectorSearchConfig, store: BaseVectorStore | None = None) -> None:
        self.config, self._store = config, store

    @as_node(lambda _: {"results": []})
    async def run(self, inputs: Inputs) -> Outputs:
        config, query = self.config, str(read_input(inputs, "query"))
        filters = combine_filters(config.filter_metadata, inputs.get("filters"))
        if self._store is None:
            leg = DenseRetriever(type="dense")
            results = await search_collection(leg, RETRIEVER, config.vector_store, query, config.top_k, filters)
        else:
            results = await self._search_store(self._store, query, filters)
        return {"results": select_results(results, config.score_threshold, config.include_metadata)}

    async def _search_store(
        self, store: BaseVectorStore, query: str, filters: Mapping[str, Any] | None
    ) -> list[dict[str, Any]]:
        vector = await to_thread.run_sync(get_query_embedding, query)
        return [_describe_vector(result) for result in await store.search(vector, self.config.top_k, filters)]


def _describe_vector(result: SearchResult) -> dict[str, Any]:
    metadata = {"source": "", "page": None, **result.metadata}
    content = metadata.pop("content", "")
    return {
        "id": result.id,
        "content": content,
        "score": result.score,
        "retriever": RETRIEVER,
        "metadata": metadata,
    }
