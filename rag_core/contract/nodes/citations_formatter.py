"""The node that turns citations into references."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rag_core.answering.citing.citations import cite
from rag_core.contract.nodes.context import passages_from_context
from rag_core.contract.nodes.grounded_generator import describe_citation
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.errors import UsageError
from rag_core.types import DEFAULT_COLLECTION


class CitationsFormatterConfig(NodeConfig):
    node_type: Literal["citations_formatter"] = "citations_formatter"


class CitationsFormatterNode:
    """Inputs: `context`, and the `citations` of a generator or a `response` with markers. Outputs: `citations`.

    Each has `id`, `source_id`, `url`, `title` and `snippet`. A node that is not enabled returns the given citations.
    """

    def __init__(self, config: CitationsFormatterConfig) -> None:
        self.config = config

    @as_node(lambda inputs: {"citations": list(inputs.get("citations") or ())})
    async def run(self, inputs: Inputs) -> Outputs:
        context = read_input(inputs, "context")
        citations = inputs["citations"] if "citations" in inputs else _find_citations(inputs, context)
        items = {str(item["id"]): item.get("metadata") or {} for item in context}
        if unknown := sorted({citation["source_id"] for citation in citations} - items.keys()):
            raise UsageError(f"citations must have the source_id of an item of the context, got {', '.join(unknown)}")
        return {"citations": [_describe_reference(citation, items[citation["source_id"]]) for citation in citations]}


def _find_citations(inputs: Inputs, context: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    answer = cite(str(read_input(inputs, "response")), passages_from_context(context), DEFAULT_COLLECTION)
    return [describe_citation(citation, context) for citation in answer.citations]


def _describe_reference(citation: Mapping[str, str], metadata: Mapping[str, Any]) -> dict[str, str]:
    url = str(metadata.get("url") or metadata.get("source", ""))
    return {**citation, "url": url, "title": str(metadata.get("title") or url)}
