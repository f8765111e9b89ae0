"""The node that completes the metadata of documents and chunks."""

from collections.abc import Mapping
from typing import Any, Literal

from anyio import to_thread

from rag_core.config import Settings
from rag_core.contract.nodes.documents import document_from_dict
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node
from rag_core.errors import UsageError
from rag_core.parsing.metadata import MetadataRules, apply_rules, complete_metadata
from rag_core.settings import load_settings


class MetadataExtractorConfig(NodeConfig):
    node_type: Literal["metadata_extractor"] = "metadata_extractor"


class MetadataExtractorNode:
    """Inputs: `documents`, `chunks` or both. Outputs: the same with more metadata.

    That is `title`, `source`, `tags` and `language`. The profile's rules for metadata are applied. A node that is not
    enabled returns its inputs.
    """

    def __init__(self, config: MetadataExtractorConfig) -> None:
        self.config = config

    @as_node(lambda inputs: _select_items(inputs))
    async def run(self, inputs: Inputs) -> Outputs:
        items_by_kind, settings = _select_items(inputs), load_settings()
        if not items_by_kind:
            raise UsageError("inputs must have 'documents' or 'chunks', got none of them")
        return {
            kind: await to_thread.run_sync(lambda items: [_complete_item(settings, item) for item in items], items)
            for kind, items in items_by_kind.items()
        }


def _select_items(inputs: Inputs) -> Outputs:
    return {kind: inputs[kind] for kind in ("documents", "chunks") if kind in inputs}


def _complete_item(settings: Settings, item: Mapping[str, Any]) -> dict[str, Any]:
    section, metadata = settings.metadata, item.get("metadata") or {}
    source = metadata.get("source", item.get("document_id", item["id"]))
    document = document_from_dict({**item, "id": source})
    rules = MetadataRules(rename=section.rename, drop=section.drop, from_path=section.from_path, set=section.set)
    document = apply_rules(complete_metadata(document, settings.parsing.detect_language), rules)
    fields = {"title": document.title, "language": document.language, "source": source}
    return {**item, "metadata": {"tags": [], **metadata, **document.metadata, **fields}}
