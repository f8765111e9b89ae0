"""The node that asks back if a question fits several documents."""

from typing import Literal

from pydantic import Field

from rag_core.answering.generation.prompt import load_prompt_pack
from rag_core.contract.nodes.context import messages_from_history
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.conversation.clarification import SpreadClarifier, was_asked_back
from rag_core.settings import load_settings
from rag_core.types import Query
from rag_core.wire.result_dicts import hit_from_result

_SEARCH: Outputs = {"route": "search", "question": "", "options": []}


class QueryClarificationConfig(NodeConfig):
    """`max_options` is the most documents to choose from."""

    node_type: Literal["query_clarification"] = "query_clarification"
    max_options: int = Field(5, ge=2, le=20)


class QueryClarificationNode:
    """Inputs: `query`, `results` of a search, and `conversation_history`. Outputs: `route`, `question` and `options`.

    `route` is `clarification` if the user is asked, and `search` otherwise. A question is never asked twice in a row.
    """

    def __init__(self, config: QueryClarificationConfig) -> None:
        self.config = config

    @as_node(lambda _: dict(_SEARCH))
    async def run(self, inputs: Inputs) -> Outputs:
        query = str(read_input(inputs, "query"))
        history = messages_from_history(inputs.get("conversation_history") or (), query)
        hits = [hit_from_result(result) for result in read_input(inputs, "results")]
        question = load_prompt_pack(load_settings().prompt.pack).clarification
        clarifier = SpreadClarifier(question=question, options=self.config.max_options)
        clarification = (
            None if was_asked_back(history, question) else clarifier.clarify(Query(text=query), history, hits)
        )
        if clarification is None:
            return dict(_SEARCH)
        return {"route": "clarification", "question": clarification.question, "options": list(clarification.options)}
