"""The node that rewrites a query so that it needs no history."""

from typing import Literal

from rag_core.contract.nodes.running import Inputs, Outputs, as_node
from rag_core.contract.nodes.understanding import UnderstandingConfig, understand_query


class QueryRewriteConfig(UnderstandingConfig):
    node_type: Literal["query_rewrite"] = "query_rewrite"


class QueryRewriteNode:
    """Inputs: `query` and `conversation_history`. Outputs: `rewritten_query` and `variants`.

    The variants are the texts to search and to fuse by their weights; there are none if the query alone is searched.
    """

    def __init__(self, config: QueryRewriteConfig) -> None:
        self.config = config

    @as_node(lambda inputs: {"rewritten_query": inputs.get("query", ""), "variants": []})
    async def run(self, inputs: Inputs) -> Outputs:
        understanding = await understand_query(self.config, inputs)
        variants = [
            {"name": variant.name, "text": variant.text, "weight": variant.weight} for variant in understanding.variants
        ]
        return {"rewritten_query": understanding.standalone, "variants": variants}
