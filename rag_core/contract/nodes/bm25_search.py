"""The node that searches by the words of a question."""

from typing import Literal

from pydantic import Field

from rag_core.config import Bm25Retriever
from rag_core.contract.nodes.collection_search import CollectionSearchConfig, search_collection, select_results
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.wire.filter_dicts import combine_filters


class BM25SearchConfig(CollectionSearchConfig):
    """`vector_store` names a collection, which has both indexes. `k1` and `b` are the parameters of BM25."""

    node_type: Literal["bm25_search"] = "bm25_search"
    k1: float = Field(1.5, ge=0)
    b: float = Field(0.75, ge=0, le=1)


class BM25SearchNode:
    """Inputs: `query`, and `filters` besides those of the configuration. Outputs: `results` with BM25 scores."""

    def __init__(self, config: BM25SearchConfig) -> None:
        self.config = config

    @as_node(lambda _: {"results": []})
    async def run(self, inputs: Inputs) -> Outputs:
        config, query = self.config, str(read_input(inputs, "query"))
        filters = combine_filters(config.filter_metadata, inputs.get("filters"))
        leg = Bm25Retriever(type="bm25", k1=config.k1, b=config.b)
        results = await search_collection(leg, "bm25", config.vector_store, query, config.top_k, filters)
        return {"results": select_results(results, config.score_threshold, config.include_metadata)}
