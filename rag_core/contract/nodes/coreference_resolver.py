"""The node that finds what the words of a query refer to."""

from typing import Literal

from rag_core.contract.nodes.running import Inputs, Outputs, as_node
from rag_core.contract.nodes.understanding import UnderstandingConfig, understand_query


class CoreferenceResolverConfig(UnderstandingConfig):
    node_type: Literal["coreference_resolver"] = "coreference_resolver"


class CoreferenceResolverNode:
    """Inputs: `query` and `conversation_history`. Outputs: `resolved_query` and `references`.

    Each reference has the words of the query as `text`, and `refers_to`.
    """

    def __init__(self, config: CoreferenceResolverConfig) -> None:
        self.config = config

    @as_node(lambda inputs: {"resolved_query": inputs.get("query", ""), "references": []})
    async def run(self, inputs: Inputs) -> Outputs:
        understanding = await understand_query(self.config, inputs)
        references = [{"text": text, "refers_to": meaning} for text, meaning in understanding.resolved.items()]
        return {"resolved_query": understanding.standalone, "references": references}
