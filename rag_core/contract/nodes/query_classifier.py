"""The node that decides by its intent what happens to a query."""

from typing import Literal

from rag_core.contract.nodes.running import Inputs, Outputs, as_node
from rag_core.contract.nodes.understanding import UnderstandingConfig, understand_query
from rag_core.retrieval.query.continuation import CLARIFICATION
from rag_core.settings import load_settings
from rag_core.types import Understanding
from rag_core.wiring.understanding import build_intents


class QueryClassifierConfig(UnderstandingConfig):
    node_type: Literal["query_classifier"] = "query_classifier"


class QueryClassifierNode:
    """Inputs: `query` and `conversation_history`. Outputs: `intent` and `route`.

    `route` is `retrieve`, `clarify` if the user must be asked back, or `reply` if the query needs no sources.
    """

    def __init__(self, config: QueryClassifierConfig) -> None:
        self.config = config

    @as_node(lambda _: {"intent": "search", "route": "retrieve"})
    async def run(self, inputs: Inputs) -> Outputs:
        understanding = await understand_query(self.config, inputs)
        return {"intent": understanding.intent, "route": _choose_route(understanding)}


def _choose_route(understanding: Understanding) -> str:
    if understanding.clarification or understanding.intent == CLARIFICATION:
        return "clarify"
    needs_sources = build_intents(load_settings()).get(understanding.intent).needs_sources
    return "retrieve" if needs_sources else "reply"
